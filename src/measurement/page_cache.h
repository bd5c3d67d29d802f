// The system's page cache, as seen from outside: how much of some files is in memory already, and taking them out.
// Plain functions.
#pragma once

#include <string>

namespace reprise::measurement {

// Share of the bytes of `path` (a file, or all files of a folder and those below) that is in memory; 0 for nothing.
double page_cache_share(const std::string& path);

// Asks the system to drop them; what was not written to disk yet is written first.
void evict_from_page_cache(const std::string& path);

}  // namespace reprise::measurement
