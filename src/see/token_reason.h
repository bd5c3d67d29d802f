// TokenReason: how one token of a greedy answer came about: the step that made it, the size and the kernels it ran
// with, in which order those add up, how long it took, and how close the other candidates were.
//
// explain_token() continues a prompt with the largest logit of each step (the smallest id on a tie), in the engine's
// own steps: prompts in chunks, then one token a step. A plain value; the thread that drives the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "engine/sampling.h"

namespace reprise::see {

// The kernels of one op in that step.
struct OpInStep {
  std::string op;
  int launches = 0;
  std::vector<std::string> kernels;
  std::string rule;       // what the op computes: the schema's line
  std::string sum_order;  // in which order the device's kernels add up; empty where they do not
};

struct TokenReason {
  int64_t number = 0;            // of the answer, from 1
  int64_t position = 0;          // in the sequence, from 0
  engine::SampledToken token;    // with the best candidates
  std::optional<double> margin;  // between the two largest logits

  std::string phase;   // of the step: decode, or prefill where it read the end of the prompt
  int64_t rows = 0;    // tokens that the step computed
  int64_t cached = 0;  // keys and values that were there before it
  engine::StepPlan::Kind kind = engine::StepPlan::Kind::Eager;
  int64_t size = 0;       // of the graph that was replayed
  std::string why_eager;  // empty for a replay
  GraphMode mode = GraphMode::Eager;
  bool live_sizes = false;         // the graph reads the live size; else padding rows were computed
  int64_t steps_before = 0;        // of this sequence
  double us = 0;                   // of the step, on this machine's clock
  std::optional<double> usual_us;  // median of the decode steps before it
  std::string device;              // for people
  DType dtype = DType::F32;
  int threads = 1;
  std::vector<OpInStep> ops;  // in the order of the graph
};

// `number` from 1. The error says where the answer ended, if it did before.
Result<TokenReason> explain_token(engine::Engine& engine, std::vector<int32_t> prompt, int64_t number,
                                  const std::vector<int32_t>& end_tokens);

// `text_of` gives a token's text, or "" without a tokenizer.
using TextOfToken = std::function<std::string(int32_t)>;
std::string reason_text(const TokenReason& reason, const TextOfToken& text_of);
OrderedJson reason_json(const TokenReason& reason, const TextOfToken& text_of);

}  // namespace reprise::see
