// SpecOptions: what `speculative_*` settings say. make_drafter() makes what they name. Plain values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "spec/drafter.h"

namespace reprise::spec {

enum class Algorithm : uint8_t {
  None,
  Ngram,   // earlier places of the request's own text, and what its client predicts
  Suffix,  // the same by frequency, with earlier answers of the same salt
  // What computes for its drafts:
  Model,       // a second model
  Prediction,  // the layer of the checkpoint that predicts further tokens (MTP)
  Eagle,       // a trained layer over the model's last hidden states
  Eagle3,      // and over those of three layers
};
std::string_view algorithm_name(Algorithm algorithm);  // "none", "NGRAM", "SUFFIX", "STANDALONE", "NEXTN", "EAGLE", ...
constexpr bool drafts_by_model(Algorithm algorithm) { return algorithm >= Algorithm::Model; }
// It is a checkpoint of its own.
constexpr bool needs_draft_path(Algorithm a) { return drafts_by_model(a) && a != Algorithm::Prediction; }
// SGLang's names, in any case. The error names those that are there.
Result<Algorithm> parse_algorithm(std::string_view name);

struct SpecOptions {
  Algorithm algorithm = Algorithm::None;
  int64_t draft_tokens = 8;  // rows of one sequence in a step: its last token and its drafts
  bool adaptive = true;      // measured times say how many drafts a step has; off: as many as there are
  int64_t max_rows = 0;      // rows of a step with drafts; 0: what the executor takes
  int64_t shortest_match = 3, longest_match = 12;
  // Suffix takes these: the longest match, drafts per token of the match, the least chance of a draft, answers that are
  // kept and their tokens in all.
  int64_t suffix_depth = 24;
  double suffix_factor = 1, suffix_least_chance = 0.1;
  int64_t suffix_answers = 10'000, suffix_tokens = 10'000'000;

  static constexpr int64_t kMostDraftTokens = 64, kLongestMatch = 64;
  Status check() const;  // ranges; the error names the setting
};

// Null for None, and for what computes, whose drafter needs a device (sched/model_drafter.h).
std::unique_ptr<Drafter> make_drafter(const SpecOptions& options);

}  // namespace reprise::spec
