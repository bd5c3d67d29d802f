#include "hub/public_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

namespace reprise::hub {
namespace {

struct Range {
  uint32_t first;
  int bits;
};

constexpr uint32_t ip(uint32_t a, uint32_t b, uint32_t c) { return a << 24 | b << 16 | c << 8; }

// Ranges of IPv4; the last two are multicast, and what is reserved with broadcast.
constexpr Range kNotPublic[] = {
    {ip(0, 0, 0), 8},     {ip(10, 0, 0), 8},      {ip(100, 64, 0), 10},  {ip(127, 0, 0), 8},    {ip(169, 254, 0), 16},
    {ip(172, 16, 0), 12}, {ip(192, 0, 0), 24},    {ip(192, 0, 2), 24},   {ip(192, 88, 99), 24}, {ip(192, 168, 0), 16},
    {ip(198, 18, 0), 15}, {ip(198, 51, 100), 24}, {ip(203, 0, 113), 24}, {ip(224, 0, 0), 4},    {ip(240, 0, 0), 4}};

bool public4(uint32_t address) {
  return std::none_of(std::begin(kNotPublic), std::end(kNotPublic),
                      [&](const Range& r) { return (address ^ r.first) >> (32 - r.bits) == 0; });
}

// 2000::/3 is what is given out; in it 2001::/23 has protocols (Teredo), 2001:db8::/32 and 3fff::/20 examples, and
// 2002::/16 addresses of IPv4.
bool public6(const uint8_t* a) {
  const uint32_t head = uint32_t{a[0]} << 24 | uint32_t{a[1]} << 16 | uint32_t{a[2]} << 8 | a[3];
  return head >> 29 == 1 && head >> 9 != 0x20010000u >> 9 && head != 0x20010db8u && head >> 16 != 0x2002u &&
         head >> 12 != 0x3fff0000u >> 12;
}

}  // namespace

bool is_public_address(const sockaddr& address) {
  if (address.sa_family == AF_INET)
    return public4(ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr));
  if (address.sa_family == AF_INET6) return public6(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr.s6_addr);
  return false;
}

}  // namespace reprise::hub
