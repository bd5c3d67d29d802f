// TokenMasks: a Grammar over the vocabulary of a TokenTable: which tokens may come where. States and masks are made
// when a text first gets there and kept for all sequences, within the grammar's limits. Shared; any thread (a lock
// inside). To be kept with the grammar as long as sequences may use it.
//
// GrammarMatcher: one sequence's way through it. A small value; a copy is a way back. One thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/grammar/grammar.h"
#include "text/grammar/state_table.h"
#include "text/grammar/token_table.h"

namespace reprise::text::grammar {

// A bit per token id, 64 to a word; 1 means allowed.
using TokenMask = std::vector<uint64_t>;

inline bool mask_has(const TokenMask& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 64] >> (static_cast<size_t>(id) % 64) & 1) != 0;
}

class TokenMasks {
 public:
  TokenMasks(Grammar::Shared grammar, TokenTable::Shared tokens);

  const Grammar& grammar() const { return *grammar_; }
  const TokenTable& tokens() const { return *tokens_; }

 private:
  friend class GrammarMatcher;
  using Mask = std::shared_ptr<const TokenMask>;
  // A table and a state in it; the table may be an older one.
  struct Position {
    std::shared_ptr<StateTable> table;
    StateId state = StateTable::kDead;
    bool can_end = false;
  };
  using Kept = std::list<std::pair<StateId, Mask>>;  // the latest used in front

  Result<Position> start();
  Result<Mask> allowed(Position* position);
  // False when the token may not come here; the position then stays.
  Result<bool> accept(Position* position, int32_t token);

  void new_table();
  // Calls `work` with the state in the present table, and once more in an empty one when there was no room.
  template <typename Work>
  Status with_room(Position* position, const Work& work);
  bool walk(StateId from, TokenMask* mask);
  void keep(StateId state, Mask mask);

  Grammar::Shared grammar_;
  TokenTable::Shared tokens_;
  std::mutex mutex_;
  std::shared_ptr<StateTable> table_;
  Kept kept_;
  std::unordered_map<StateId, Kept::iterator> by_state_;
  std::vector<StateId> path_;
};

class GrammarMatcher {
 public:
  static Result<GrammarMatcher> create(std::shared_ptr<TokenMasks> masks);

  // The tokens that may come next. An error where no token of the vocabulary goes on, or beyond the limits.
  Result<std::shared_ptr<const TokenMask>> allowed();
  // The token that was chosen; Invalid, and nothing changes, when it was not allowed.
  Status accept(int32_t token);
  // Whether the text so far is complete.
  bool can_end() const { return position_.can_end; }
  // Whether an end token came.
  bool ended() const { return ended_; }

 private:
  explicit GrammarMatcher(std::shared_ptr<TokenMasks> masks) : masks_(std::move(masks)) {}

  std::shared_ptr<TokenMasks> masks_;
  TokenMasks::Position position_;
  bool ended_ = false;
};

}  // namespace reprise::text::grammar
