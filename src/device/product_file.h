// A file of ProductWays as bytes, so that the next start need not search.
//
// The layout: "REPRWAYS", format version, length and xxHash of the rest, key, ways; all little-endian. Reading believes
// nothing: every length is checked against the end, checksum and key must match, and every way must be one that a
// device could have found. Plain functions; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/product_ways.h"

namespace reprise {

constexpr size_t kMostWays = 1 << 16;  // of a file

std::string encode_ways(const std::vector<ProductWay>& ways, const ProductWaysKey& key);
// The error says what is wrong with the bytes. Those of another key are Unsupported, all else is Invalid.
Result<std::vector<ProductWay>> decode_ways(std::span<const uint8_t> bytes, const ProductWaysKey& key);

// The ways alone; for tests.
std::string encode_ways_payload(const std::vector<ProductWay>& ways);
Result<std::vector<ProductWay>> decode_ways_payload(std::span<const uint8_t> payload);

}  // namespace reprise
