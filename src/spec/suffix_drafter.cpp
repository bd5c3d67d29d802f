#include "spec/suffix_drafter.h"

#include <algorithm>
#include <functional>

namespace reprise::spec {

namespace {

bool lies_in(std::span<const int32_t> part, const std::vector<int32_t>& text) {
  return std::greater_equal<>()(part.data(), text.data()) && std::less<>()(part.data(), text.data() + text.size());
}

}  // namespace

SuffixDrafter::SuffixDrafter(const SpecOptions& options)
    : options_(options),
      acceptance_(options.shortest_match, options.suffix_depth),
      store_(options.shortest_match, options.suffix_answers, options.suffix_tokens) {
  voters_.reserve(3 * TextIndex::kMostCandidates);
}

void SuffixDrafter::begin(const Start& start) {
  Text text{TextIndex(options_.shortest_match),
            TextIndex(options_.shortest_match),
            {start.prediction.begin(), start.prediction.end()},
            std::string(start.salt)};
  text.predicted.extend(text.prediction);
  texts_.insert_or_assign(start.id, std::move(text));
}

void SuffixDrafter::end(uint64_t id, std::span<const int32_t> answer) {
  const auto text = texts_.find(id);
  if (text == texts_.end()) return;
  store_.add(text->second.salt, answer);
  texts_.erase(text);
}

void SuffixDrafter::find_voters(Text& text, const Wish& wish) {
  voters_.clear();
  length_ = 0;
  const auto vote = [&](const TextIndex::Match& m, std::span<const int32_t> follows) {
    if (m.length < length_ || follows.empty() || follows[0] == AnswerStore::kBorder) return true;
    if (m.length > length_) voters_.clear();
    length_ = m.length;
    voters_.push_back(follows);
    return true;
  };
  const auto in = [&](const TextIndex& index, std::span<const int32_t> all) {
    index.places(all, wish.tokens, options_.suffix_depth, 0,
                 [&](const TextIndex::Match& m) { return vote(m, all.subspan(static_cast<size_t>(m.next))); });
  };
  text.own.extend(wish.tokens.first(wish.tokens.size() - 1));  // a match ends before the text does
  in(text.predicted, text.prediction);
  in(text.own, wish.tokens);
  store_.places(text.salt, wish.tokens, options_.suffix_depth, vote);
}

void SuffixDrafter::propose(std::span<const Wish> wishes, std::span<Proposal> out) {
  for (size_t i = 0; i < wishes.size(); ++i) {
    out[i].clear();
    const auto text = texts_.find(wishes[i].id);
    if (text != texts_.end() && !wishes[i].tokens.empty()) propose_one(text->second, wishes[i], out[i]);
  }
}

void SuffixDrafter::propose_one(Text& text, const Wish& wish, Proposal& out) {
  find_voters(text, wish);
  text.matched = length_;
  const auto most = std::min(wish.most, static_cast<int64_t>(options_.suffix_factor * static_cast<double>(length_)));
  const double rate = acceptance_.rate(length_);
  double share = 1, chance = 1;
  for (int64_t i = 0; i < most && !voters_.empty(); ++i) {
    const auto at = static_cast<size_t>(i);
    std::erase_if(voters_, [&](auto v) { return at >= v.size() || v[at] == AnswerStore::kBorder; });
    // A handful of voters: counting each against all is as fast as a table.
    int64_t best_votes = 0;
    int32_t best = 0;
    for (const auto& v : voters_) {
      const int64_t votes = std::count_if(voters_.begin(), voters_.end(), [&](auto w) { return w[at] == v[at]; });
      if (votes > best_votes) best_votes = votes, best = v[at];
    }
    if (best_votes == 0) break;
    share *= static_cast<double>(best_votes) / static_cast<double>(voters_.size());
    if (share < options_.suffix_least_chance) break;
    std::erase_if(voters_, [&](auto v) { return v[at] != best; });
    chance *= rate;
    // Those of the prediction are looked at first, so it comes first among equals.
    if (i == 0) out.from_prediction = !text.prediction.empty() && lies_in(voters_.front(), text.prediction);
    out.tokens.push_back(best);
    out.survival.push_back(static_cast<float>(chance * share));
  }
}

void SuffixDrafter::judged(uint64_t id, int64_t verified, int64_t accepted) {
  const auto text = texts_.find(id);
  if (text != texts_.end()) acceptance_.saw(text->second.matched, verified, accepted);
}

}  // namespace reprise::spec
