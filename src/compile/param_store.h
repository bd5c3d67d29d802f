// ParamStore: the parameters of one compiled model on the device, each in the layout its kernels asked for, in one
// buffer. The loader fills it once (several threads may pack different rows); afterwards it is read-only.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compile/binding.h"
#include "device/memory.h"

namespace reprise {

class ParamStore {
 public:
  static Result<ParamStore> create(std::vector<ParamPlan> params, MemoryPool& pool);

  std::span<const ParamPlan> params() const { return params_; }
  size_t bytes() const { return buffer_.size(); }
  void* data(size_t index) const { return buffer_.as<uint8_t>() + offsets_[index]; }
  void* data(const std::string& name) const;  // CHECKs that it exists

  // Stores rows [first, first + count) of the row-major parameter, already in its dtype. The elements of a vector count
  // as rows.
  void pack_rows(size_t index, const void* rows, int64_t first, int64_t count);

 private:
  std::vector<ParamPlan> params_;
  std::vector<size_t> offsets_;
  std::unordered_map<std::string, size_t> index_;
  Buffer buffer_;
};

}  // namespace reprise
