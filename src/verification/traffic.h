// The traffic that `graph verify` sends through engines: batches with fixed random tokens, and what comes out as one
// hash per row of logits, so that a large vocabulary needs no memory. Plain functions; one engine at a time.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/replay_case.h"

namespace reprise::verification {

// What a run produced, in the order of steps and rows.
struct Outcome {
  std::vector<uint64_t> rows;     // hash of each row of logits
  std::vector<float> logits;      // of the rows that differ from what was expected, and only the first few; or of all
  std::vector<size_t> differing;  // indices of those rows
};

enum class Feed : uint8_t {
  Together,  // the batch as it is
  Alone,     // every sequence by itself
  Chunked,   // prompts a few tokens at a time
  Drafted,   // prompts together, then one step that has the tokens behind them as drafts, and others behind these
};

struct TrafficOptions {
  int64_t batch = 1;
  int decode_steps = 2;
  Feed feed = Feed::Together;
  bool greedy = false;    // next tokens instead of logits: each row's hash is that of its argmax
  bool borders = false;   // prompts that end before, at and behind the end of a page, instead of short ones
  bool keep_all = false;  // all rows: of logits; of hidden states with `greedy`
};

// One prefill and some decode steps. `expected`: rows that differ from it keep their logits. Rows come in the order of
// (step, sequence) regardless of the feed.
Result<Outcome> run_traffic(engine::Engine& e, const TrafficOptions& options, const Outcome* expected = nullptr);

// Garbage wherever nothing may depend on it: the arena, the scratch page, padding rows.
engine::StepHook poison();

// The step of a replay report: runs it, and returns its rows. Errors name what the engine cannot hold.
Result<Outcome> run_case(engine::Engine& e, const engine::ReplayCase& c, std::string_view source,
                         const Outcome* expected = nullptr, bool keep_all = false);

// What is wrong when one staged input is changed: nothing when exactly the rows that should change did. Runs a decode
// step of `batch` sequences (a prefill for cu_seqlens).
struct PerturbResult {
  int64_t checked = 0;
  std::vector<std::string> wrong;
  // "positions of row 3": changes that changed nothing. An old value was read, or rounding hides the new one, and then
  // from every engine of this dtype.
  std::set<std::string> unchanged;
};
Result<PerturbResult> perturb_inputs(engine::Engine& e, int64_t batch);

}  // namespace reprise::verification
