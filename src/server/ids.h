// make_id: names for requests, answers and calls, unlike all others of this process and, very likely, of any other. Any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace reprise::server {

uint64_t random_bits();
// A fresh id with this beginning.
std::string make_id(std::string_view prefix);

}  // namespace reprise::server
