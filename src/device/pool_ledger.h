// PoolLedger: the bookkeeping that every MemoryPool does: live and peak bytes, by label. Usable from any thread.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>

#include "device/memory.h"

namespace reprise {

class PoolLedger {
 public:
  void add(const std::string& label, size_t bytes) {
    std::lock_guard lock(mutex_);
    stats_.live_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    stats_.live_by_label[label] += bytes;
  }
  void remove(const std::string& label, size_t bytes) {
    std::lock_guard lock(mutex_);
    stats_.live_bytes -= bytes;
    auto it = stats_.live_by_label.find(label);
    if ((it->second -= bytes) == 0) stats_.live_by_label.erase(it);
  }
  PoolStats stats() const {
    std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  mutable std::mutex mutex_;
  PoolStats stats_;
};

}  // namespace reprise
