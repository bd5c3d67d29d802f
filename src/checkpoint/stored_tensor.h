// StoredTensor: where one tensor lies in one file, as safetensors and GGUF readers report it after checking it against
// the file's bounds. A plain value; it does not keep the file open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/storage_type.h"

namespace reprise::checkpoint {

struct StoredTensor {
  std::string name;
  StorageType type = StorageType::Other;
  std::string type_name;       // the file's spelling, also for types we cannot read
  std::vector<int64_t> shape;  // outermost first, the last dimension is contiguous (GGUF's order is turned round)
  uint64_t offset = 0;         // from the start of the file
  uint64_t bytes = 0;

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

}  // namespace reprise::checkpoint
