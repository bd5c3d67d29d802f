#include "text/grammar/token_masks.h"

#include <algorithm>

namespace reprise::text::grammar {

TokenMasks::TokenMasks(Grammar::Shared grammar, TokenTable::Shared tokens)
    : grammar_(std::move(grammar)), tokens_(std::move(tokens)) {
  new_table();
}

// Masks belong to the states of a table. Sequences move on when they next come by; the last one frees the old table.
void TokenMasks::new_table() {
  table_ = std::make_shared<StateTable>(&grammar_->rules(), grammar_->limits());
  kept_.clear();
  by_state_.clear();
}

template <typename Work>
Status TokenMasks::with_room(Position* position, const Work& work) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt > 0) new_table();
    if (position->table != table_) {
      const StateId state = table_->adopt(*position->table, position->state);
      if (state == StateTable::kFull) continue;
      *position = {table_, state, position->can_end};
    }
    if (work(position->state)) return Status::ok();
  }
  return table_->full_error();
}

Result<TokenMasks::Position> TokenMasks::start() {
  const std::lock_guard lock(mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt > 0) new_table();
    const StateId state = table_->start();
    if (state != StateTable::kFull) return Position{table_, state, table_->can_end(state)};
  }
  return table_->full_error();
}

Result<TokenMasks::Mask> TokenMasks::allowed(Position* position) {
  const std::lock_guard lock(mutex_);
  Mask out;
  RETURN_IF_ERROR(with_room(position, [&](StateId state) {
    if (const auto known = by_state_.find(state); known != by_state_.end()) {
      kept_.splice(kept_.begin(), kept_, known->second);
      out = kept_.front().second;
      return true;
    }
    auto mask = std::make_shared<TokenMask>((tokens_->size() + 63) / 64);
    if (!walk(state, mask.get())) return false;
    out = std::move(mask);
    keep(state, out);
    return true;
  }));
  return out;
}

// All tokens at once: at each node of their tree, the state after its bytes. False when the table is full.
bool TokenMasks::walk(StateId from, TokenMask* mask) {
  const auto set = [&](int32_t id) { (*mask)[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); };
  const std::vector<TokenTable::Node>& nodes = tokens_->nodes();
  path_.resize(tokens_->max_depth() + 1);
  path_[0] = from;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTable::Node& node = nodes[i];
    const StateId state = table_->step(path_[node.depth], node.byte);
    if (state == StateTable::kFull) return false;
    if (state == StateTable::kDead) {
      i = node.skip;
      continue;
    }
    path_[node.depth + size_t{1}] = state;
    for (int32_t id = node.token; id >= 0; id = tokens_->same_bytes(id)) set(id);
    ++i;
  }
  if (table_->can_end(from)) {
    for (const int32_t id : tokens_->end_tokens()) set(id);
  }
  return true;
}

void TokenMasks::keep(StateId state, Mask mask) {
  const size_t bytes = mask->size() * sizeof(uint64_t);
  const size_t room = std::max<size_t>(1, grammar_->limits().max_mask_bytes / std::max<size_t>(1, bytes));
  for (; kept_.size() >= room; kept_.pop_back()) by_state_.erase(kept_.back().first);
  kept_.emplace_front(state, std::move(mask));
  by_state_[state] = kept_.begin();
}

Result<bool> TokenMasks::accept(Position* position, int32_t token) {
  const std::lock_guard lock(mutex_);
  StateId next = StateTable::kDead;
  RETURN_IF_ERROR(with_room(position, [&](StateId state) {
    next = state;
    for (const char c : tokens_->bytes(token)) {
      if (next != StateTable::kFull) next = table_->step(next, static_cast<uint8_t>(c));
    }
    return next != StateTable::kFull;
  }));
  if (next == StateTable::kDead) return false;
  *position = {table_, next, table_->can_end(next)};
  return true;
}

Result<GrammarMatcher> GrammarMatcher::create(std::shared_ptr<TokenMasks> masks) {
  GrammarMatcher out(std::move(masks));
  ASSIGN_OR_RETURN(out.position_, out.masks_->start());
  return out;
}

Result<std::shared_ptr<const TokenMask>> GrammarMatcher::allowed() {
  ASSIGN_OR_RETURN(auto mask, masks_->allowed(&position_));
  const bool any = std::any_of(mask->begin(), mask->end(), [](uint64_t word) { return word != 0; });
  if (!any) return error(Code::Unsupported, "no token of the vocabulary continues the text as the grammar wants");
  return mask;
}

Status GrammarMatcher::accept(int32_t token) {
  const TokenTable& tokens = masks_->tokens();
  if (token < 0 || static_cast<size_t>(token) >= tokens.size())
    return invalid("token {} is not one of the {} tokens", token, tokens.size());
  if (ended_) return invalid("token {} comes after an end token", token);
  if (tokens.is_end(token)) {
    if (!can_end()) return invalid("the text may not end here (token {})", token);
    ended_ = true;
    return Status::ok();
  }
  if (tokens.bytes(token).empty()) return invalid("token {} adds no text and is never allowed", token);
  ASSIGN_OR_RETURN(const bool accepted, masks_->accept(&position_, token));
  return accepted ? Status::ok() : invalid("token {} is not allowed here", token);
}

}  // namespace reprise::text::grammar
