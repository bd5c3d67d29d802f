// PlanFile: one compiled program as bytes: the final graph, what the passes reported, how parameters were packed, the
// kernels and the memory plan, and step times learned while it ran.
//
// The layout: "REPRPLAN", format version, key, length and xxHash of the payload, payload; all little-endian. Reading
// believes nothing: every length is checked against the end, the checksum and the key must match. Plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compile/plan_key.h"

namespace reprise {

// PlannedStorage without pointers.
struct StoredStorage {
  bool workspace = false;
  uint32_t id = 0;  // of the root value, or the number of the workspace's node
  int64_t first = 0, last = 0;
  uint64_t bytes = 0, offset = 0;
};

struct PlanFile {
  std::string graph;                 // IR text after all passes
  std::vector<std::string> kernels;  // by node; "" where none runs
  std::vector<StoredStorage> storages;
  uint64_t arena_bytes = 0;
  PipelineReport report;
};

std::string encode(const PlanFile& file, const PlanKey& key);
// The error says what is wrong with the bytes: not a plan, another version, another key, checksum, cut short.
Result<PlanFile> decode(std::span<const uint8_t> bytes, const PlanKey& key);

// The payload alone; for tests.
std::string encode_payload(const PlanFile& file);
Result<PlanFile> decode_payload(std::span<const uint8_t> payload);

}  // namespace reprise
