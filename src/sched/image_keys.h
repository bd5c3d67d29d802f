// ImageKeys: the numbers that stand for rows of images in the keys of the prefix cache.
//
// All rows of one image share a placeholder token, so a prefix is told by who is on the image: each digest (SHA-256,
// all of it) has a number behind the vocabulary, and no two digests ever have the same one. Digests that are forgotten
// get a new number when they come back, and find nothing. For any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/status.h"

namespace reprise::sched {

class ImageKeys {
 public:
  explicit ImageKeys(int64_t vocabulary, size_t most = 1 << 16) : next_(vocabulary), most_(most) {}

  Result<int32_t> key(const std::string& digest) {
    std::lock_guard lock(mutex_);
    if (const auto it = known_.find(digest); it != known_.end()) return it->second;
    if (next_ > INT32_MAX)
      return error(Code::Unsupported, "no numbers are left for further images; start the server anew");
    if (known_.size() >= most_) known_.clear();
    return known_[digest] = static_cast<int32_t>(next_++);
  }

 private:
  std::mutex mutex_;
  int64_t next_;
  size_t most_;
  std::unordered_map<std::string, int32_t> known_;
};

}  // namespace reprise::sched
