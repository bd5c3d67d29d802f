// SharedPool: memory of the arena that all ranks of a host see (ranks/region.h).
//
// Taken in order and given back at once, when the last buffer goes, so that ranks which allocate the same things in the
// same order have them at the same offsets. A device owns one; any thread may give buffers back, one at a time
// allocates.
#pragma once

#include <atomic>

#include "device/memory.h"
#include "device/pool_ledger.h"
#include "ranks/region.h"

namespace reprise {

class SharedPool final : public MemoryPool {
 public:
  explicit SharedPool(const ranks::Region& region) : region_(region) {}

  Result<Buffer> allocate(size_t bytes, std::string_view label) override;
  PoolStats stats() const override { return ledger_.stats(); }

 private:
  const ranks::Region& region_;
  PoolLedger ledger_;
  std::atomic<size_t> used_{0};
  std::atomic<int> buffers_{0};
};

}  // namespace reprise
