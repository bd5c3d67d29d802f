#include "spec/ngram_drafter.h"

#include <algorithm>

namespace reprise::spec {

void NgramDrafter::begin(const Start& start) {
  Text text{TextIndex(shortest_), TextIndex(shortest_), {start.prediction.begin(), start.prediction.end()}};
  text.predicted.extend(text.prediction);
  texts_.insert_or_assign(start.id, std::move(text));
}

void NgramDrafter::propose(std::span<const Wish> wishes, std::span<Proposal> out) {
  for (size_t i = 0; i < wishes.size(); ++i) {
    out[i].clear();
    const auto text = texts_.find(wishes[i].id);
    if (text != texts_.end()) propose_one(text->second, wishes[i], out[i]);
  }
}

void NgramDrafter::propose_one(Text& text, const Wish& wish, Proposal& out) const {
  if (wish.tokens.empty()) return;
  // A match ends before the text does.
  text.own.extend(wish.tokens.first(wish.tokens.size() - 1));
  const TextIndex::Match own = text.own.longest(wish.tokens, wish.tokens, longest_),
                         predicted = text.predicted.longest(text.prediction, wish.tokens, longest_);
  // A match at the end of the prediction tells nothing.
  const bool ends = predicted.next == static_cast<int64_t>(text.prediction.size());
  const bool by_client = predicted.length > 0 && !ends && predicted.length >= own.length;
  const TextIndex::Match match = by_client ? predicted : own;
  text.matched = match.length;
  out.from_prediction = by_client;
  if (match.length == 0) return;
  const auto follows =
      (by_client ? std::span<const int32_t>(text.prediction) : wish.tokens).subspan(static_cast<size_t>(match.next));
  const auto most = static_cast<size_t>(std::max<int64_t>(0, wish.most));
  out.tokens.assign(follows.begin(), follows.begin() + static_cast<ptrdiff_t>(std::min(follows.size(), most)));
  // Behind the end of its own text come the drafts themselves, as in copies of LZ77 that overlap what they write: a
  // text that has begun to repeat goes on repeating.
  if (!by_client)
    while (out.tokens.size() < most) out.tokens.push_back(out.tokens[out.tokens.size() - follows.size()]);
  const double rate = acceptance_.rate(match.length);
  double chance = 1;
  for (size_t i = 0; i < out.tokens.size(); ++i) out.survival.push_back(static_cast<float>(chance *= rate));
}

void NgramDrafter::judged(uint64_t id, int64_t verified, int64_t accepted) {
  const auto text = texts_.find(id);
  if (text != texts_.end()) acceptance_.saw(text->second.matched, verified, accepted);
}

}  // namespace reprise::spec
