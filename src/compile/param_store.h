// ParamStore: the parameters of one compiled model on the device, each in the layout its kernels asked for, in one
// buffer. The loader fills it once (several threads may pack different rows); afterwards it is read-only. Where the
// host cannot write the device's memory, a parameter is packed in host memory and goes over when all of its rows are
// there, so no more of the model than what is being loaded is held twice. A parameter may be lent by the store of
// another model on the device, which outlives this one: then it is there, takes no room here and is not packed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compile/binding.h"
#include "device/device.h"

namespace reprise {

class ParamStore {
 public:
  // In memory that the host writes.
  static Result<ParamStore> create(std::vector<ParamPlan> params, MemoryPool& pool, std::vector<void*> lent = {});
  // On any device, which outlives the store.
  static Result<ParamStore> create(std::vector<ParamPlan> params, Device& device, std::vector<void*> lent = {});

  std::span<const ParamPlan> params() const { return params_; }
  size_t bytes() const { return buffer_.size(); }
  void* data(size_t index) const { return lent(index) ? lent_[index] : buffer_.as<uint8_t>() + offsets_[index]; }
  void* data(const std::string& name) const;  // CHECKs that it exists

  bool lent(size_t index) const { return index < lent_.size() && lent_[index]; }
  // What this store lends to a parameter of that plan: null where it has none that is alike in name, type and layout.
  void* lend(const ParamPlan& plan) const;

  // Stores rows [first, first + count) of the row-major parameter, already in its dtype; each row once. The elements of
  // a vector count as rows.
  Status pack_rows(size_t index, const void* rows, int64_t first, int64_t count);

 private:
  // Parameters on their way to a device.
  struct Transfer;
  struct DeleteTransfer {
    void operator()(Transfer* t) const;
  };
  void pack_at(const ParamPlan& param, void* to, const void* rows, int64_t first, int64_t count) const;

  std::vector<ParamPlan> params_;
  std::vector<size_t> offsets_;
  std::vector<void*> lent_;  // by parameter; null, and behind the last: it is here
  std::unordered_map<std::string, size_t> index_;
  Buffer buffer_;
  std::unique_ptr<Transfer, DeleteTransfer> transfer_;  // null where the host writes buffer_
};

}  // namespace reprise
