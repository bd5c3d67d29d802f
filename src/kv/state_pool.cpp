#include "kv/state_pool.h"

#include <utility>

#include "base/check.h"

namespace reprise::kv {
namespace {

constexpr int64_t kReserved = 2;  // scratch and zero

}  // namespace

StateSlots& StateSlots::operator=(StateSlots&& other) noexcept {
  if (this == &other) return *this;
  reset();
  free_ = std::exchange(other.free_, nullptr);
  ids_ = other.ids_;
  count_ = other.count_;
  now_ = other.now_;
  return *this;
}

void StateSlots::reset() {
  if (free_) free_->insert(free_->end(), ids_.begin(), ids_.begin() + count_);
  free_ = nullptr;
}

size_t StatePool::bytes_for(const std::vector<StateCache>& caches, int64_t sequences, int each, int64_t most_kept) {
  size_t slot = 0;
  for (const StateCache& c : caches) slot += c.slot_bytes;
  return slot * static_cast<size_t>(sequences * each + most_kept + kReserved);
}

Result<StatePool> StatePool::create(MemoryPool& memory, std::vector<StateCache> caches, int64_t sequences, int each,
                                    int64_t most_kept) {
  CHECK(sequences > 0 && each > 0 && each <= StateSlots::kMost, "{} sequences with {} slots", sequences, each);
  StatePool pool;
  ASSIGN_OR_RETURN(pool.buffer_, memory.allocate(bytes_for(caches, sequences, each, most_kept), "states"));
  pool.caches_ = std::move(caches);
  pool.slots_ = sequences * each + most_kept + kReserved;
  pool.most_kept_ = most_kept;
  pool.each_ = each;
  pool.free_ = std::make_shared<std::vector<SlotId>>();
  pool.free_->reserve(static_cast<size_t>(pool.slots_));
  for (int64_t s = pool.slots_ - 1; s >= kReserved; --s) pool.free_->push_back(static_cast<SlotId>(s));
  return pool;
}

void* StatePool::cache(size_t c) const {
  CHECK(c < caches_.size());
  size_t before = 0;
  for (size_t i = 0; i < c; ++i) before += caches_[i].slot_bytes;
  return buffer_.as<uint8_t>() + before * static_cast<size_t>(slots_);
}

Result<StateSlots> StatePool::allocate() {
  // Slots for states that are kept are not for sequences.
  if (free_slots() - (most_kept_ - kept_) < each_)
    return error(Code::OutOfMemory, "{} sequences have states, and no other has room (`max_running_requests`)",
                 (slots_ - kReserved - most_kept_) / each_);
  StateSlots out;
  out.free_ = free_;
  out.count_ = each_;
  for (int i = 0; i < each_; ++i) {
    out.ids_[static_cast<size_t>(i)] = free_->back();
    free_->pop_back();
  }
  return out;
}

std::optional<SlotId> StatePool::keep(StateSlots& of) {
  CHECK(of.free_ == free_, "a state of another pool");
  if (kept_ == most_kept_) return std::nullopt;
  ++kept_;
  const SlotId other = free_->back();
  free_->pop_back();
  return std::exchange(of.ids_[static_cast<size_t>(of.now_)], other);
}

void StatePool::forget(SlotId kept) {
  CHECK(kept_ > 0 && kept >= kReserved && kept < slots_, "state {} of {}", kept, slots_);
  --kept_;
  free_->push_back(kept);
}

}  // namespace reprise::kv
