// StateTable: the automaton of a RuleSet, built where texts lead. A state is the set of places that a text may have
// reached: a node and the stack of calls around it. Stacks are shared, states are kept once, and a step known from
// before costs a look into a table. Nothing is thrown away; a full table says so, and its owner begins another one
// (adopt). Belongs to one owner, one thread at a time; the RuleSet must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/grammar/limits.h"
#include "text/grammar/rules.h"

namespace reprise::text::grammar {

using StateId = uint32_t;

class StateTable {
 public:
  static constexpr StateId kDead = 0;           // no text goes on from here
  static constexpr StateId kFull = UINT32_MAX;  // the table has no room for the answer

  StateTable(const RuleSet* rules, const GrammarLimits& limits);

  StateId start();
  StateId step(StateId state, uint8_t byte) {
    const StateId known = steps_[state * classes_ + rules_.byte_class(byte)];
    return known != kUnknown ? known : make_step(state, byte);
  }
  // Whether the text may be over here.
  bool can_end(StateId state) const { return !places(state).empty() && places(state).back() == kEndPlace; }
  // The same state as one of another table over the same rules.
  StateId adopt(const StateTable& other, StateId state);

  size_t state_count() const { return place_begin_.size() - 1; }
  Status full_error() const;

 private:
  // A node, and below it the index of a stack; the largest of all says that the text may end.
  using Place = uint64_t;
  static constexpr Place kEndPlace = UINT64_MAX;
  static constexpr StateId kUnknown = UINT32_MAX - 1;
  struct Stack {
    NodeId back;
    uint32_t below;
    uint32_t depth;
  };
  struct Hash {
    size_t operator()(uint64_t x) const { return static_cast<size_t>((x ^ (x >> 29)) * 0x9E3779B97F4A7C15ull); }
  };
  // Places met while one state is made.
  class Seen {
   public:
    void clear();
    bool add(Place place);  // false when it was there

   private:
    void grow();
    std::vector<Place> slots_ = std::vector<Place>(64, kEndPlace);
    std::vector<Place> used_;
  };

  std::span<const Place> places(StateId state) const {
    return std::span(places_).subspan(place_begin_[state], place_begin_[state + 1] - place_begin_[state]);
  }
  StateId make_step(StateId state, uint8_t byte);
  void reach(NodeId node, uint32_t stack) {
    const Place place = Place{node} << 32 | stack;
    if (seen_.add(place)) todo_.push_back(place);
  }
  // The state of what reach() collected.
  StateId close();
  StateId intern(std::span<const Place> sorted);
  uint32_t push(NodeId back, uint32_t below);

  const RuleSet& rules_;
  GrammarLimits limits_;
  size_t classes_;
  std::vector<StateId> steps_;  // by state and byte class
  std::vector<Place> places_;
  std::vector<size_t> place_begin_;  // by state, and one more
  std::unordered_multimap<uint64_t, StateId> known_;
  std::vector<Stack> stacks_;
  std::unordered_map<uint64_t, uint32_t, Hash> known_stacks_;
  size_t visits_ = 0;
  Seen seen_;
  std::vector<Place> todo_;
  std::vector<Place> found_;
};

}  // namespace reprise::text::grammar
