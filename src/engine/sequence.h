// Sequence: one stream of tokens and the KV pages that hold its past.
//
// tokens() is prompt and output together; the first cached() of them are in the cache. Between the steps of a sequence
// that decodes, cached() is size() - 1. The last tokens may be pending: steps that are in flight will give them, and
// the engine hands each to the step behind on the device. The pages belong to the engine's pool, which takes them back
// through Engine::release; the scheduler owns the Sequence. A model with states gives it slots of theirs at its first
// step, which are given back when the sequence is forgotten or goes. It may begin with the state of another sequence
// that began alike. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/image.h"
#include "kv/kv_pool.h"
#include "kv/state_pool.h"
#include "models/placed_image.h"

namespace reprise::engine {

class Sequence {
 public:
  // Tokens from `second_kind` on are of the second kind: the second text of a pair.
  explicit Sequence(std::vector<int32_t> prompt, int64_t second_kind = INT64_MAX)
      : tokens_(std::move(prompt)), second_kind_(second_kind) {}

  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t second_kind() const { return second_kind_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  void append(int32_t token) { tokens_.push_back(token); }
  // A place for the token that the last step in flight will give. resolve() puts it there.
  static constexpr int32_t kPending = -1;
  void append_pending() { tokens_.push_back(kPending); }
  bool pending() const { return !tokens_.empty() && tokens_.back() == kPending; }
  // What belongs in this place, if it is pending there.
  void resolve(int64_t place, int32_t token) {
    if (place < size() && tokens_[static_cast<size_t>(place)] == kPending) tokens_[static_cast<size_t>(place)] = token;
  }
  void drop_pending() { tokens_.pop_back(); }
  int64_t cached() const { return cached_; }
  int64_t uncached() const { return size() - cached_; }

  // For the engine alone.
  std::vector<kv::PageId>& pages() { return pages_; }
  const std::vector<kv::PageId>& pages() const { return pages_; }
  void set_cached(int64_t cached) { cached_ = cached; }
  kv::StateSlots& states() { return states_; }
  const kv::StateSlots& states() const { return states_; }
  // The next step reads the state in this slot, which is that behind cached() tokens and stays until then.
  void begin_with(kv::SlotId state) { begin_ = state; }
  // Drafts of the last step that are among the tokens, and not yet in the state that the next one reads.
  int64_t came_true() const { return came_true_; }
  kv::SlotId state_read() const {
    if (cached_ == 0) return kv::kZeroSlot;
    return begin_ != kv::kZeroSlot ? begin_ : states_.now();
  }
  // The LoRA slot (engine/adapter_slots.h) that its tokens go through; 0: none. Chosen before the first step: what is
  // cached came of it.
  int32_t adapter() const { return adapter_; }
  void set_adapter(int32_t slot) { adapter_ = slot; }
  // Images in the places of some tokens, in their order; chosen before the first step.
  void set_images(const std::vector<SequenceImage>& images) {
    for (const SequenceImage& i : images) {
      placed_.push_back({i.first, i.high, i.wide, i.time, i.joined});
      inputs_.push_back(i.input);
    }
  }
  const std::vector<models::PlacedImage>& images() const { return placed_; }
  const ImageInput& image_input(size_t i) const { return *inputs_[i]; }
  void set_image_rows(size_t i, std::shared_ptr<const models::ImageRows> rows) { placed_[i].rows = std::move(rows); }
  // Whether some of tokens [first, first + count) are rows of image i, or of any.
  bool shows(size_t i, int64_t first, int64_t count) const {
    return placed_[i].first < first + count && placed_[i].end() > first;
  }
  bool shows(int64_t first, int64_t count) const {
    for (size_t i = 0; i < placed_.size(); ++i)
      if (shows(i, first, count)) return true;
    return false;
  }
  // The next `count` tokens were computed.
  void advance(int64_t count) {
    cached_ += count;
    if (states_) states_.turn();
    restart();
  }
  // Drafts of the last step that came true: their tokens are appended, and their keys and values are in place, in a
  // model with states also what they change of those. Keys of the others lie behind cached() and are written again.
  void commit(int64_t accepted) {
    cached_ += accepted;
    if (states_) came_true_ += accepted;
  }
  // states().now() is the state behind cached() tokens.
  void restart() {
    begin_ = kv::kZeroSlot;
    came_true_ = 0;
  }
  // Tokens behind the first `size` are forgotten, and their keys and values are written again. Not with states.
  void rewind(int64_t size) {
    tokens_.resize(static_cast<size_t>(size));
    cached_ = std::min(cached_, size);
  }
  // Nothing is cached any more; the pages are the caller's to give back.
  void forget() {
    pages_.clear();
    states_.reset();
    restart();
    cached_ = 0;
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<kv::PageId> pages_;
  std::vector<models::PlacedImage> placed_;
  std::vector<std::shared_ptr<const ImageInput>> inputs_;
  kv::StateSlots states_;
  kv::SlotId begin_ = kv::kZeroSlot;  // that slot: none
  int64_t cached_ = 0, came_true_ = 0;
  int32_t adapter_ = 0;
  int64_t second_kind_;
};

}  // namespace reprise::engine
