// Drafter: guesses the next tokens of requests, so that one step may verify several of them (speculative decoding).
//
// It sees what requests ask and answer, and never a token that was guessed and not drawn. What it proposes changes how
// fast an answer comes and nothing of the answer: the scheduler, which verifies guesses, drops a wrong one. One per
// scheduler, on the scheduler's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/draw.h"

namespace reprise::spec {

struct Start {
  uint64_t id = 0;                           // of the request
  std::span<const int32_t> prediction = {};  // what its client expects as the answer; may be empty
  std::string_view salt = {};                // requests of one salt may learn from each other
};

struct Wish {
  uint64_t id = 0;
  std::span<const int32_t> tokens = {};  // of the request so far: its prompt and its answer
  int64_t most = 0;                      // drafts; 0: none this time
  // How the token behind these is drawn, and that behind draft number i at position + i: a drafter with logits draws
  // likewise, so that it agrees where both models do. None: the largest logit.
  std::optional<Draw> draw = {};
  // The request's pages in the engine that answers it, for a head that drafts from that engine's hidden states.
  std::span<const int32_t> pages = {};
};

struct Proposal {
  std::vector<int32_t> tokens;
  std::vector<float> survival;   // the chance that the first i + 1 of them all come true; it falls along the tokens
  bool from_prediction = false;  // they are the client's

  void clear() {
    tokens.clear();
    survival.clear();
    from_prediction = false;
  }
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Once for a request, before anything else of it.
  virtual void begin(const Start& start) = 0;
  // A proposal for each wish, in their order; an empty one where there is nothing to guess from.
  virtual void propose(std::span<const Wish> wishes, std::span<Proposal> out) = 0;
  // For a drafter that computes for its drafts: what would become of them, as proposals with chances alone, so that
  // those are not made that do not pay. False: a proposal costs next to nothing.
  virtual bool foresee(std::span<const Wish> wishes, std::span<Proposal> out) { return false; }
  // What a round takes: the next draft of each of these. 0: not known, or next to nothing.
  virtual double round_us() const { return 0; }
  // The first `verified` tokens of its last proposal for the request were verified, and the first `accepted` of these
  // came true. Before the next proposal for it; not called where none was verified.
  virtual void judged(uint64_t id, int64_t verified, int64_t accepted) = 0;
  // The request is over with this answer. Unknown ids are ignored.
  virtual void end(uint64_t id, std::span<const int32_t> answer) = 0;
  // What was kept of requests that are over goes.
  virtual void flush() {}
};

}  // namespace reprise::spec
