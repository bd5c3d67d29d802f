#include "spec/text_index.h"

#include <algorithm>

namespace reprise::spec {
namespace {

constexpr size_t kFewestHeads = 64;

}  // namespace

size_t TextIndex::slot_of(const int32_t* window) const {
  uint64_t hash = 0;
  for (int64_t i = 0; i < window_; ++i) {
    hash = (hash ^ static_cast<uint32_t>(window[i])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash) & (heads_.size() - 1);
}

void TextIndex::extend(std::span<const int32_t> text) {
  const int64_t windows = static_cast<int64_t>(text.size()) - window_ + 1;
  auto known = static_cast<int64_t>(before_.size());
  if (windows <= known) return;
  if (static_cast<size_t>(windows) > heads_.size()) {
    // Twice as many heads, and all windows anew: each is hashed twice on average.
    size_t heads = std::max(kFewestHeads, heads_.size());
    while (heads < static_cast<size_t>(windows)) heads *= 2;
    heads_.assign(heads, -1);
    before_.clear();
    before_.reserve(heads);
    known = 0;
  }
  for (int64_t at = known; at < windows; ++at) {
    int32_t& head = heads_[slot_of(text.data() + at)];
    before_.push_back(head);
    head = static_cast<int32_t>(at);
  }
}

void TextIndex::clear() {
  before_.clear();
  std::fill(heads_.begin(), heads_.end(), -1);
}

TextIndex::Match TextIndex::longest(std::span<const int32_t> text, std::span<const int32_t> key, int64_t most) const {
  Match best;
  places(text, key, most, 0, [&](const Match& m) {
    if (m.length > best.length) best = m;
    return best.length < most;
  });
  return best;
}

}  // namespace reprise::spec
