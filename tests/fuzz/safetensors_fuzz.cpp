// Any bytes as a safetensors file: parsing answers a Status, and a file that parses can be read in full. The same bytes
// are also tried as a shard index.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/shard_index.h"
#include "models/model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  using namespace reprise::checkpoint;
  (void)parse_shard_index({reinterpret_cast<const char*>(data), size}, "index");

  // Mutators rarely get the length in front right, so the input is the header and one byte says how much data follows.
  if (size < 1) return 0;
  std::vector<uint8_t> bytes(8);
  const uint64_t header = size - 1;
  for (int i = 0; i < 8; ++i) bytes[static_cast<size_t>(i)] = static_cast<uint8_t>(header >> (8 * i));
  bytes.insert(bytes.end(), data + 1, data + size);
  bytes.resize(bytes.size() + data[0], 0x7f);
  for (const std::span<const uint8_t> input : {std::span<const uint8_t>(data, size), std::span<const uint8_t>(bytes)}) {
    auto file = SafetensorsFile::parse(input, "fuzz");
    if (!file.is_ok()) continue;
    auto checkpoint = Checkpoint::from_safetensors(std::move(*file), models::families());
    if (!checkpoint.is_ok()) continue;
    for (const CheckpointTensor& t : checkpoint->tensors()) {
      const auto raw = checkpoint->raw(t);
      uint64_t sum = 0, bad = 0;
      for (uint8_t b : raw) sum += b;
      std::vector<float> row(static_cast<size_t>(t.bytes == 0 || t.type == StorageType::Other ? 0 : t.row_elements()));
      if (t.bytes && t.rows() > 0) (void)checkpoint->read_rows(t, t.rows() - 1, 1, DType::F32, row.data(), &bad);
      if (sum == ~uint64_t{0}) __builtin_trap();  // keeps the loop
    }
  }
  return 0;
}
