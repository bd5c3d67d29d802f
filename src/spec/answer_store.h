// AnswerStore: finished answers by salt, for drafts of later ones. What one salt's requests wrote never shows in the
// drafts of another: how fast an answer comes would tell it.
//
// Answers of a salt lie one after another in one text, with kBorder between them. The oldest answer of all salts goes
// first when there are too many answers or tokens. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spec/text_index.h"

namespace reprise::spec {

class AnswerStore {
 public:
  static constexpr int32_t kBorder = -1;  // no token

  AnswerStore(int64_t window, int64_t most_answers, int64_t most_tokens)
      : window_(window), most_answers_(most_answers), most_tokens_(most_tokens) {}

  // One that is larger than all there is room for, or has no window, is not kept.
  void add(std::string_view salt, std::span<const int32_t> answer);
  void clear() {
    order_.clear();
    shelves_.clear();
    tokens_ = 0;
  }
  int64_t answers() const { return static_cast<int64_t>(order_.size()); }
  int64_t tokens() const { return tokens_; }

  // Calls visit(match, what follows it up to the end of its answer) as TextIndex::places does.
  template <typename Visit>
  void places(std::string_view salt, std::span<const int32_t> key, int64_t most, const Visit& visit) const {
    const auto shelf = shelves_.find(salt);
    if (shelf == shelves_.end()) return;
    const Shelf& s = shelf->second;
    s.index.places(s.text, key, most, s.first, [&](const TextIndex::Match& m) {
      return visit(m, std::span(s.text).subspan(static_cast<size_t>(m.next)));
    });
  }

 private:
  struct Shelf {
    explicit Shelf(int64_t window) : index(window) {}
    std::vector<int32_t> text;
    TextIndex index;
    int64_t first = 0;  // what is before it is no longer there
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  using Shelves = std::unordered_map<std::string, Shelf, Hash, std::equal_to<>>;
  struct Kept {
    Shelves::iterator shelf;
    int64_t size = 0;  // with its border
  };
  void drop_oldest();

  int64_t window_, most_answers_, most_tokens_, tokens_ = 0;
  Shelves shelves_;
  std::deque<Kept> order_;  // oldest first
};

}  // namespace reprise::spec
