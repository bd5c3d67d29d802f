// ReplayCase: one step as a replay report holds it, so that `graph verify --case` can run it again: the tokens of each
// sequence, how many of them were cached before the step, and how many it computed.
//
// A report may come from anywhere, so every number is checked: against what any engine can take when it is read, and
// against the limits of the engine that is to run it. Plain values; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/executor.h"

namespace reprise::engine {

struct ReplayCase {
  struct Part {
    std::vector<int32_t> tokens;
    int64_t cached = 0, count = 0;
    bool all = false;    // logits of every token of the step
    int64_t drafts = 0;  // the last tokens of the step, which were guesses; cached and count are then all of the tokens
  };
  std::vector<Part> sequences;

  int64_t most_drafts() const;  // of a sequence
  int64_t rows() const;         // with logits
};

// {"sequences": [{"tokens": [..], "cached": n, "count": n, "logits": "last", "drafts": n}, ..]}, the last one where
// there are some; other members of the file are the report's. Errors name the field and what is allowed.
Result<ReplayCase> parse_case(std::string_view text, std::string_view source);

// What the engine that runs it can hold.
struct CaseLimits {
  int64_t vocabulary = 0;
  int64_t context = 0;      // tokens of a sequence
  int64_t step_tokens = 0;  // computed in one step
  int64_t step_rows = 0;    // sequences, and rows with logits, of one step
  int64_t draft_rows = 0;   // rows with logits of a step with drafts
};
CaseLimits limits_of(const Executor& e);
Status check_case(const ReplayCase& c, const CaseLimits& limits, std::string_view source);

// The list "sequences" of a step.
OrderedJson items_json(std::span<const StepItem> items);

}  // namespace reprise::engine
