// CharacterRange: sorted tables of code points, and a look-up in them. Each file that sorts characters into classes
// lists its runs alone (unicode.cpp, bert_characters.cpp). Constants and a pure function; any thread.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>

namespace reprise::text {

// A run of code points, both ends included. The runs of a table are in ascending order and do not overlap.
struct CharacterRange {
  char32_t first;
  char32_t last;
};

inline bool contains(std::span<const CharacterRange> sorted, char32_t c) {
  auto it = std::upper_bound(sorted.begin(), sorted.end(), c,
                             [](char32_t v, const CharacterRange& r) { return v < r.first; });
  return it != sorted.begin() && c <= std::prev(it)->last;
}

}  // namespace reprise::text
