#include "kv/kv_pool.h"

#include <algorithm>

#include "base/check.h"

namespace reprise::kv {

KvShape KvShape::grouped(int64_t layers, int64_t heads, int64_t head_dim, DType dtype) {
  const size_t row = static_cast<size_t>(head_dim) * size_of(dtype) + (dtype == DType::I8 ? sizeof(float) : 0);
  KvShape shape;
  for (int64_t l = 0; l < layers; ++l)
    shape.caches.push_back({"kv." + std::to_string(l), static_cast<size_t>(2 * heads * kPageTokens) * row});
  return shape;
}

Result<KvPool> KvPool::create(MemoryPool& memory, const KvShape& shape, int64_t pages, int64_t scratch) {
  if (pages < 1) return invalid("a KV pool needs at least 1 page, not {}", pages);
  CHECK(scratch >= 1, "{} scratch pages", scratch);
  KvPool pool;
  pool.shape_ = shape;
  pool.scratch_ = scratch;
  ASSIGN_OR_RETURN(pool.buffer_, memory.allocate(shape.page_bytes() * static_cast<size_t>(pages + scratch), "kv"));
  pool.used_.assign(static_cast<size_t>(pages + 1), false);
  pool.used_[kScratchPage] = true;
  for (int64_t p = pages; p >= 1; --p) pool.free_.push_back(static_cast<PageId>(p));
  return pool;
}

Status KvPool::resize(MemoryPool& memory, int64_t pages, const CopyBytes& copy, const std::function<Status()>& copied) {
  for (size_t p = static_cast<size_t>(std::max<int64_t>(pages, 0)) + 1; p < used_.size(); ++p)
    if (used_[p]) return error(Code::Busy, "KV page {} is in use, a pool of {} pages would lose it", p, pages);
  ASSIGN_OR_RETURN(KvPool moved, create(memory, shape_, pages, scratch_));
  const size_t kept = std::min(used_.size(), moved.used_.size());
  for (size_t p = 1; p < kept; ++p) moved.used_[p] = used_[p];
  std::erase_if(moved.free_, [&](PageId p) { return moved.used_[static_cast<size_t>(p)]; });
  for (size_t c = 0; c < shape_.caches.size(); ++c)
    for (size_t p = 1; p < kept; ++p)
      if (used_[p]) {
        const auto id = static_cast<PageId>(p);
        RETURN_IF_ERROR(copy(moved.page(c, id), page(c, id), shape_.caches[c].page_bytes));
      }
  if (copied) RETURN_IF_ERROR(copied());
  moved.generation_ = generation_ + 1;
  *this = std::move(moved);
  return Status::ok();
}

Status KvPool::copy_page(PageId from, PageId to, const CopyBytes& copy) const {
  CHECK(in_use(from) && in_use(to) && from != to, "page {} to page {}", from, to);
  for (size_t c = 0; c < shape_.caches.size(); ++c)
    RETURN_IF_ERROR(copy(page(c, to), page(c, from), shape_.caches[c].page_bytes));
  return Status::ok();
}

void* KvPool::cache(size_t c) const {
  CHECK(c < shape_.caches.size());
  size_t before = 0;
  for (size_t i = 0; i < c; ++i) before += shape_.caches[i].page_bytes;
  return buffer_.as<uint8_t>() + before * static_cast<size_t>(total_pages() + scratch_);
}

Result<std::vector<PageId>> KvPool::allocate(int64_t pages) {
  if (pages < 0) return invalid("cannot allocate {} pages", pages);
  if (pages > free_pages())
    return error(Code::OutOfMemory,
                 "{} KV pages asked for, {} of {} are free (a page is {} tokens; `max_total_tokens` sets the pool)",
                 pages, free_pages(), total_pages(), kPageTokens);
  std::vector<PageId> out(free_.end() - pages, free_.end());
  free_.resize(free_.size() - static_cast<size_t>(pages));
  for (PageId p : out) used_[static_cast<size_t>(p)] = true;
  return out;
}

void KvPool::release(std::span<const PageId> pages) {
  for (PageId p : pages) {
    CHECK(in_use(p), "page {} is not in use", p);
    used_[static_cast<size_t>(p)] = false;
    free_.push_back(p);
  }
}

Status KvPool::check_integrity() const {
  std::vector<bool> seen(used_.size(), false);
  for (PageId p : free_) {
    if (p <= 0 || static_cast<size_t>(p) >= used_.size())
      return error(Code::Internal, "free page {} does not exist", p);
    if (seen[static_cast<size_t>(p)]) return error(Code::Internal, "page {} is free twice", p);
    if (used_[static_cast<size_t>(p)]) return error(Code::Internal, "page {} is both free and in use", p);
    seen[static_cast<size_t>(p)] = true;
  }
  for (size_t p = 0; p < used_.size(); ++p)
    if (!used_[p] && !seen[p]) return error(Code::Internal, "page {} is neither free nor in use", p);
  return Status::ok();
}

}  // namespace reprise::kv
