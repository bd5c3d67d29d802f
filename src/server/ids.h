// make_id: names for requests, answers and calls, unlike all others of this process and, very likely, of any other.
// Short ids are those that Mistral's templates take for calls of tools. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace reprise::server {

uint64_t random_bits();
// A fresh id with this beginning.
std::string make_id(std::string_view prefix);
// Nine letters or digits.
std::string make_short_id();
bool is_short_id(std::string_view id);
// The id itself where it is short; else a short one, the same for the same id everywhere and at any time.
std::string short_id_of(std::string_view id);

}  // namespace reprise::server
