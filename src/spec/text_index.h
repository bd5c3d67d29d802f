// TextIndex: where each window of a text that only grows was before, as the match finders of LZ77 compressors have it:
// a hash of every window of `window` tokens, chained backwards. Four bytes a token, and a table of heads of at most as
// much again; nothing is ever taken back. It does not hold the text. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace reprise::spec {

class TextIndex {
 public:
  explicit TextIndex(int64_t window) : window_(window) {}

  // Knows the windows of `text`, which begins like the one given before.
  void extend(std::span<const int32_t> text);
  void clear();
  int64_t window() const { return window_; }

  // A place where what precedes `next` is the end of the key.
  struct Match {
    int64_t length = 0;  // tokens that agree; 0: there is none
    int64_t next = 0;    // place in the text behind them
  };
  static constexpr int kMostCandidates = 16;  // places that are looked at, the latest first
  // Calls visit(match) for the latest places where at least a window of the key's end stands, with how many tokens
  // agree, up to `most`; until it returns false. Places that begin before `from` do not count.
  template <typename Visit>
  void places(std::span<const int32_t> text, std::span<const int32_t> key, int64_t most, int64_t from,
              const Visit& visit) const {
    const auto key_size = static_cast<int64_t>(key.size());
    if (key_size < window_ || heads_.empty()) return;
    int looked = 0, candidates = 0;
    for (int32_t at = heads_[slot_of(key.data() + key_size - window_)]; at >= 0 && looked < kMostLinks; ++looked) {
      if (at < from) return;
      const int64_t next = at + window_;
      const int64_t room = most < key_size ? most : key_size;
      int64_t length = 0;
      while (length < room && next - length - 1 >= from &&
             text[static_cast<size_t>(next - length - 1)] == key[static_cast<size_t>(key_size - length - 1)])
        ++length;
      if (length >= window_) {
        if (!visit(Match{length, next}) || ++candidates == kMostCandidates) return;
      }
      at = before_[static_cast<size_t>(at)];
    }
  }
  // The longest of them, and the latest of the longest.
  Match longest(std::span<const int32_t> text, std::span<const int32_t> key, int64_t most) const;

 private:
  static constexpr int kMostLinks = 64;  // of a chain, most of which may be other windows with the same hash

  size_t slot_of(const int32_t* window) const;

  int64_t window_;
  std::vector<int32_t> before_;  // of the window that begins at each place: the last one before it in the same slot
  std::vector<int32_t> heads_;   // by slot: the last window in it; a power of two of them
};

}  // namespace reprise::spec
