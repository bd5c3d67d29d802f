// KvPool: the device memory that holds what attention remembers of tokens, in pages of 128 tokens.
//
// A model has several caches: one per layer with keys and values, or two with compressed keys and their rotated part. A
// page spans all of them: page p of cache c lies at cache(c) + p * its page_bytes. Page 0 is scratch: padding rows
// write there and it is never handed out; where a device wants a place of its own for each of many such rows, more
// pages behind those that are handed out. Memory is reserved at once and touched lazily. The owner of sequences (one
// thread) allocates and releases.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/kv_page.h"
#include "base/status.h"
#include "device/memory.h"

namespace reprise::kv {

using PageId = int32_t;
constexpr PageId kScratchPage = 0;
using reprise::kPageTokens;

struct KvCache {
  std::string name;  // of the graph's input
  size_t page_bytes = 0;
};

struct KvShape {
  std::vector<KvCache> caches;

  // One cache "kv.<layer>" for each layer, of `heads` keys and values. An int8 row of a head ends with its scale, an
  // fp32.
  static KvShape grouped(int64_t layers, int64_t heads, int64_t head_dim, DType dtype);

  size_t page_bytes() const {
    size_t sum = 0;
    for (const KvCache& c : caches) sum += c.page_bytes;
    return sum;
  }
  size_t token_bytes() const { return page_bytes() / kPageTokens; }
};

// Pages that hold `tokens` tokens.
constexpr int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

class KvPool {
 public:
  // `pages` usable pages, and `scratch` ones on top: page 0, and those behind the usable ones.
  static Result<KvPool> create(MemoryPool& memory, const KvShape& shape, int64_t pages, int64_t scratch = 1);

  const KvShape& shape() const { return shape_; }
  int64_t total_pages() const { return static_cast<int64_t>(used_.size()) - 1; }
  int64_t scratch_pages() const { return scratch_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  size_t bytes() const { return buffer_.size(); }
  void* cache(size_t c) const;
  // Page p of cache c.
  uint8_t* page(size_t c, PageId p) const {
    return static_cast<uint8_t*>(cache(c)) + static_cast<size_t>(p) * shape_.caches[c].page_bytes;
  }

  // Moves to a pool of `pages` usable pages; pages in use keep their numbers and content. Buffers move: the code that
  // bound addresses must bind them anew (generation()). Errors leave the pool as it was. The old memory is freed once
  // `copied` has returned, which waits for copies that were only queued.
  using CopyBytes = std::function<Status(void* to, const void* from, size_t bytes)>;
  Status resize(MemoryPool& memory, int64_t pages, const CopyBytes& copy, const std::function<Status()>& copied = {});
  // All caches of a page; both are in use.
  Status copy_page(PageId from, PageId to, const CopyBytes& copy) const;
  // Counts the moves.
  uint64_t generation() const { return generation_; }

  // All of them or OutOfMemory, which names what is free.
  Result<std::vector<PageId>> allocate(int64_t pages);
  // CHECKs that every page is in use: releasing twice is a bug.
  void release(std::span<const PageId> pages);
  bool in_use(PageId page) const {
    return page > 0 && static_cast<size_t>(page) < used_.size() && used_[static_cast<size_t>(page)];
  }
  // Every page is either free once or in use.
  Status check_integrity() const;

 private:
  KvShape shape_;
  Buffer buffer_;
  std::vector<PageId> free_;  // used as a stack, lowest ids on top at first
  std::vector<bool> used_;
  int64_t scratch_ = 1;
  uint64_t generation_ = 0;
};

}  // namespace reprise::kv
