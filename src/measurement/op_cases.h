// OpCase: one call of an op at the sizes of a real model, for `reprise bench ops`: every fused op, and the single ops
// that a step spends its time in. Plain values; usable from any thread.
#pragma once

#include <string>
#include <vector>

#include "graph/tracer.h"
#include "nn/fused.h"

namespace reprise::measurement {

// The symbols of a case, and the dtype that stands for the one that is asked for.
constexpr SymbolId kCaseTokens = 1, kCaseSequences = 2, kCaseBorders = 3;
constexpr DType kCaseDtype = DType::BF16;
// States and keys of so many sequences take a gigabyte; more tokens than that are of one sequence.
constexpr int64_t kMostSequences = 256;

struct OpCase {
  std::string op;
  std::string model;   // "SmolLM2-135M" (op_cases.cpp, expert_cases.cpp), or "example" for an op of no known model
  std::string detail;  // what the operands' sizes do not say: "16/8 heads of 128"
  std::vector<Symbol> symbols;
  // As FusedExample::in; bf16 stands for the dtype that is asked for, here and as the attribute `out`.
  std::vector<TensorType> in;
  Attrs attrs;
  bool fused = false;
  int64_t experts = 0, per_token = 0;  // where tokens go to some of so many experts
  int64_t context = 512;               // keys of each sequence, where there are any
  bool one_sequence = false;           // all tokens are of one sequence, from its first on

  // The sizes of a step of so many tokens: "T" and "R" are the tokens, "Q" one more, other symbols their bound.
  LiveSizes live(int64_t tokens) const;
  LiveSizes bounds() const;
};

// Names that cases exist for: the fused ops as they are declared, then single ops.
std::vector<std::string> benchmarked_ops(const nn::FusedOps& fused);
// Whose sizes cases have (OpCase::model), without "example".
std::vector<std::string> benchmarked_models(const nn::FusedOps& fused);

// Cases of one op, the smallest model last. `max_tokens` bounds the tokens of a step. A fused op that has no place here
// yet runs on its own examples, so there is always one.
std::vector<OpCase> op_cases(const std::string& op, const nn::FusedOps& fused, int64_t max_tokens);
}  // namespace reprise::measurement
