// Sequence: one stream of tokens and the KV pages that hold its past.
//
// tokens() is prompt and output together; the first cached() of them are in the cache. The pages belong to the engine's
// pool, which takes them back through Engine::release; the scheduler (or generate loop) owns the Sequence. One thread
// at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kv/kv_pool.h"

namespace reprise::engine {

class Sequence {
 public:
  explicit Sequence(std::vector<int32_t> prompt) : tokens_(std::move(prompt)) {}

  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  void append(int32_t token) { tokens_.push_back(token); }
  int64_t cached() const { return cached_; }
  int64_t uncached() const { return size() - cached_; }

  // For the engine alone.
  std::vector<kv::PageId>& pages() { return pages_; }
  const std::vector<kv::PageId>& pages() const { return pages_; }
  void set_cached(int64_t cached) { cached_ = cached; }

 private:
  std::vector<int32_t> tokens_;
  std::vector<kv::PageId> pages_;
  int64_t cached_ = 0;
};

}  // namespace reprise::engine
