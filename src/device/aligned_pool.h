// AlignedPool: a MemoryPool over a runtime that promises less alignment than pools do, and memory that is not zeroed.
//
// Derived classes say how memory is taken, given back and zeroed; what they do it with must outlive the buffers, as the
// pool does. The device owns the pool; any thread may allocate, so the derived functions must allow that.
#pragma once

#include "device/memory.h"
#include "device/pool_ledger.h"

namespace reprise {

class AlignedPool : public MemoryPool {
 public:
  // `limit` is what there is in all: more is not even asked for.
  explicit AlignedPool(size_t limit) : limit_(limit) {}

  Result<Buffer> allocate(size_t bytes, std::string_view label) final;
  PoolStats stats() const final { return ledger_.stats(); }

 protected:
  virtual Status allocate_raw(size_t bytes, void** raw) = 0;
  virtual void free_raw(void* raw) = 0;
  virtual Status zero(void* data, size_t bytes) = 0;

 private:
  size_t limit_;
  PoolLedger ledger_;
};

}  // namespace reprise
