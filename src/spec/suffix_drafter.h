// SuffixDrafter: drafts by how often text went on so (SuffixDecoding, arXiv 2411.04975).
//
// It looks up the longest end of the request's text in that text itself, in what the client predicts, and in finished
// answers of the same salt. All places with a match of that length vote on each further token; the most frequent one is
// drafted, of equals that of the latest place, for as long as its share of the votes, multiplied along the drafts,
// stays above a bound, and at most `suffix_factor` drafts per token of the match. As Drafter.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "spec/acceptance.h"
#include "spec/answer_store.h"
#include "spec/drafter.h"
#include "spec/options.h"
#include "spec/text_index.h"

namespace reprise::spec {

class SuffixDrafter final : public Drafter {
 public:
  explicit SuffixDrafter(const SpecOptions& options);

  void begin(const Start& start) override;
  void propose(std::span<const Wish> wishes, std::span<Proposal> out) override;
  void judged(uint64_t id, int64_t verified, int64_t accepted) override;
  void end(uint64_t id, std::span<const int32_t> answer) override;
  void flush() override { store_.clear(); }

  const AnswerStore& store() const { return store_; }

 private:
  struct Text {
    TextIndex own, predicted;
    std::vector<int32_t> prediction;
    std::string salt;
    int64_t matched = 0;  // by the last proposal
  };
  void find_voters(Text& text, const Wish& wish);
  void propose_one(Text& text, const Wish& wish, Proposal& out);

  SpecOptions options_;
  Acceptance acceptance_;
  AnswerStore store_;
  std::unordered_map<uint64_t, Text> texts_;
  // State of one proposal, kept to avoid allocating: what follows each place, those of the latest first.
  std::vector<std::span<const int32_t>> voters_;
  int64_t length_ = 0;  // of their matches
};

}  // namespace reprise::spec
