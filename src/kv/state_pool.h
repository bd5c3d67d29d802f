// StatePool: the device memory of caches that hold one state per sequence (a recurrent layer's), in slots.
//
// A model has several such caches; slot s spans all of them, as a page of KvPool does. A step that may not run twice
// over a state reads it from one slot and writes it to another, so a sequence has several slots that take turns: one
// more than steps may be in flight. The state before a step is then there until the next one has ended, and a step can
// be checked, repeated or computed again without a copy. Slot 0 is scratch: rows of no sequence write there. Slot 1 is
// zero for good: sequences without a token read it, so nothing is cleared when one begins.
//
// A state may outlive its sequence, so that others begin with it (the prefix cache): keep() takes the slot of the state
// behind the last step out of the sequence's, without a copy. The thread that owns the sequences owns the pool.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/memory.h"

namespace reprise::kv {

using SlotId = int32_t;
constexpr SlotId kScratchSlot = 0, kZeroSlot = 1;

// The slots of one sequence; gives them back in the end.
class StateSlots {
 public:
  static constexpr int kMost = 3;
  StateSlots() = default;
  StateSlots(StateSlots&& other) noexcept { *this = std::move(other); }
  StateSlots& operator=(StateSlots&& other) noexcept;
  ~StateSlots() { reset(); }
  void reset();

  explicit operator bool() const { return free_ != nullptr; }
  SlotId now() const { return ids_[static_cast<size_t>(now_)]; }                  // the state behind the last step
  SlotId next() const { return ids_[static_cast<size_t>((now_ + 1) % count_)]; }  // where the next step writes it
  void turn() { now_ = (now_ + 1) % count_; }                                     // a step was submitted

 private:
  friend class StatePool;
  std::shared_ptr<std::vector<SlotId>> free_;  // of the pool, which may go first
  std::array<SlotId, kMost> ids_{};
  int count_ = 1, now_ = 0;
};

struct StateCache {
  std::string name;  // of the graph's input
  size_t slot_bytes = 0;
};

class StatePool {
 public:
  StatePool() = default;
  // For so many sequences with `each` slots, and so many states that are kept. Memory comes filled with zeros.
  static Result<StatePool> create(MemoryPool& memory, std::vector<StateCache> caches, int64_t sequences, int each,
                                  int64_t most_kept = 0);
  static size_t bytes_for(const std::vector<StateCache>& caches, int64_t sequences, int each, int64_t most_kept = 0);

  const std::vector<StateCache>& caches() const { return caches_; }
  int64_t slots() const { return slots_; }  // scratch and zero included; 0: the model has no states
  size_t bytes() const { return buffer_.size(); }
  void* cache(size_t c) const;
  uint8_t* slot(size_t c, SlotId s) const {
    return static_cast<uint8_t*>(cache(c)) + static_cast<size_t>(s) * caches_[c].slot_bytes;
  }

  int64_t free_slots() const { return free_ ? static_cast<int64_t>(free_->size()) : 0; }
  // OutOfMemory when more sequences hold states than the pool was made for.
  Result<StateSlots> allocate();

  // The state behind the last step of a sequence is the caller's from now on, until it is given to forget(). The
  // sequence gets another slot for it, whose state is anything: its next step must read the one that is kept. None: as
  // many are kept as there is room for.
  std::optional<SlotId> keep(StateSlots& of);
  void forget(SlotId kept);
  int64_t kept() const { return kept_; }
  int64_t most_kept() const { return most_kept_; }

 private:
  std::vector<StateCache> caches_;
  Buffer buffer_;
  int64_t slots_ = 0, kept_ = 0, most_kept_ = 0;
  int each_ = 1;
  std::shared_ptr<std::vector<SlotId>> free_;  // used as a stack
};

}  // namespace reprise::kv
