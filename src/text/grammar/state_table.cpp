#include "text/grammar/state_table.h"

#include <algorithm>

namespace reprise::text::grammar {

void StateTable::Seen::clear() {
  // Few places were used as a rule; a large table is not swept for them.
  for (const Place place : used_) {
    for (size_t at = Hash{}(place) & (slots_.size() - 1); slots_[at] != kEndPlace; at = (at + 1) & (slots_.size() - 1))
      slots_[at] = kEndPlace;
  }
  used_.clear();
}

bool StateTable::Seen::add(Place place) {
  if (used_.size() * 2 >= slots_.size()) grow();
  size_t at = Hash{}(place) & (slots_.size() - 1);
  for (; slots_[at] != kEndPlace; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at] == place) return false;
  }
  slots_[at] = place;
  used_.push_back(place);
  return true;
}

void StateTable::Seen::grow() {
  slots_.assign(slots_.size() * 2, kEndPlace);
  for (const Place place : used_) {
    size_t at = Hash{}(place) & (slots_.size() - 1);
    while (slots_[at] != kEndPlace) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = place;
  }
}

StateTable::StateTable(const RuleSet* rules, const GrammarLimits& limits)
    : rules_(*rules), limits_(limits), classes_(rules->class_count()) {
  limits_.max_states = std::max<size_t>(limits_.max_states, 2);
  place_begin_.push_back(0);
  stacks_.push_back({0, 0, 0});  // the empty one
  intern({});
  std::fill(steps_.begin(), steps_.end(), kDead);
}

StateId StateTable::start() {
  reach(rules_.start(0), 0);
  return close();
}

StateId StateTable::make_step(StateId state, uint8_t byte) {
  for (size_t i = place_begin_[state]; i < place_begin_[state + 1]; ++i) {
    const Place place = places_[i];
    if (place == kEndPlace) continue;
    ++visits_;
    for (const ByteEdge& edge : rules_.bytes(static_cast<NodeId>(place >> 32))) {
      if (edge.low <= byte && byte <= edge.high) reach(edge.to, static_cast<uint32_t>(place));
    }
  }
  const StateId next = close();
  if (next != kFull) steps_[state * classes_ + rules_.byte_class(byte)] = next;
  return next;
}

// Follows jumps, calls and returns. What stays is where bytes lead on.
StateId StateTable::close() {
  found_.clear();
  bool can_end = false;
  while (!todo_.empty() && visits_ < limits_.max_visits) {
    ++visits_;
    const NodeId node = static_cast<NodeId>(todo_.back() >> 32);
    const auto stack = static_cast<uint32_t>(todo_.back());
    if (!rules_.bytes(node).empty()) found_.push_back(todo_.back());
    todo_.pop_back();
    const uint32_t depth = stacks_[stack].depth;
    const auto fits = [&](NodeId to, size_t at) { return at + rules_.height(to) <= limits_.max_depth; };
    for (const NodeId to : rules_.jumps(node)) {
      if (fits(to, depth)) reach(to, stack);
    }
    for (const Call& call : rules_.calls(node)) {
      const NodeId inner = rules_.start(call.rule);
      if (fits(inner, depth + size_t{1}) && fits(call.back, depth)) reach(inner, push(call.back, stack));
    }
    if (!rules_.is_end(node)) continue;
    if (stack == 0) {
      can_end = true;
    } else {
      reach(stacks_[stack].back, stacks_[stack].below);
    }
  }
  const bool complete = todo_.empty();
  todo_.clear();
  seen_.clear();
  if (!complete) return kFull;
  std::sort(found_.begin(), found_.end());
  if (can_end) found_.push_back(kEndPlace);
  return intern(found_);
}

uint32_t StateTable::push(NodeId back, uint32_t below) {
  const auto [entry, is_new] =
      known_stacks_.try_emplace(uint64_t{back} << 32 | below, static_cast<uint32_t>(stacks_.size()));
  if (is_new) stacks_.push_back({back, below, stacks_[below].depth + 1});
  return entry->second;
}

StateId StateTable::intern(std::span<const Place> sorted) {
  uint64_t hash = sorted.size();
  for (const Place place : sorted) hash = Hash{}(hash ^ place);
  const auto range = known_.equal_range(hash);
  for (auto it = range.first; it != range.second; ++it) {
    const auto same = places(it->second);
    if (std::equal(same.begin(), same.end(), sorted.begin(), sorted.end())) return it->second;
  }
  if (state_count() >= limits_.max_states || places_.size() + sorted.size() > limits_.max_places) return kFull;
  const auto id = static_cast<StateId>(state_count());
  places_.insert(places_.end(), sorted.begin(), sorted.end());
  place_begin_.push_back(places_.size());
  steps_.resize(steps_.size() + classes_, kUnknown);
  known_.emplace(hash, id);
  return id;
}

StateId StateTable::adopt(const StateTable& other, StateId state) {
  std::vector<Place> out;
  std::vector<NodeId> backs;
  for (const Place place : other.places(state)) {
    if (place == kEndPlace) {
      out.push_back(place);
      continue;
    }
    backs.clear();
    for (auto s = static_cast<uint32_t>(place); s != 0; s = other.stacks_[s].below)
      backs.push_back(other.stacks_[s].back);
    uint32_t stack = 0;
    for (size_t i = backs.size(); i-- > 0;) stack = push(backs[i], stack);
    out.push_back((place >> 32) << 32 | stack);
  }
  std::sort(out.begin(), out.end());
  return intern(out);
}

Status StateTable::full_error() const {
  return error(Code::Unsupported,
               "the grammar is too involved here: more than {} states, {} places or {} visits (GrammarLimits)",
               limits_.max_states, limits_.max_places, limits_.max_visits);
}

}  // namespace reprise::text::grammar
