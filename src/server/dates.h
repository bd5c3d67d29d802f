// Times as answers have them (RFC 3339, in UTC). Plain functions; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace reprise::server {

std::string date_of(int64_t seconds);                             // since 1970: "2026-01-02T03:04:05Z"
std::string date_of(std::chrono::system_clock::time_point time);  // to the nanosecond

}  // namespace reprise::server
