// NgramDrafter: "prompt lookup". Text that was there before will go on as it did.
//
// It takes the longest end of the request's text, of `shortest_match` to `longest_match` tokens, that also stands
// earlier in the text or in what the client predicts. It finds the latest such place and proposes what follows there:
// up to the end of the prediction, and behind the end of the text what it has just proposed, so that a repeated token
// or line goes on. Where both have a match of one length, the prediction goes first. Threads: as Drafter.
#pragma once

#include <unordered_map>
#include <vector>

#include "spec/acceptance.h"
#include "spec/drafter.h"
#include "spec/options.h"
#include "spec/text_index.h"

namespace reprise::spec {

class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const SpecOptions& options)
      : shortest_(options.shortest_match), longest_(options.longest_match), acceptance_(shortest_, longest_) {}

  void begin(const Start& start) override;
  void propose(std::span<const Wish> wishes, std::span<Proposal> out) override;
  void judged(uint64_t id, int64_t verified, int64_t accepted) override;
  void end(uint64_t id, std::span<const int32_t> answer) override { texts_.erase(id); }

 private:
  struct Text {
    TextIndex own, predicted;
    std::vector<int32_t> prediction;
    int64_t matched = 0;  // by the last proposal
  };
  void propose_one(Text& text, const Wish& wish, Proposal& out) const;

  int64_t shortest_, longest_;
  Acceptance acceptance_;
  std::unordered_map<uint64_t, Text> texts_;
};

}  // namespace reprise::spec
