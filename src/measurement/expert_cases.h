// Cases of `reprise bench ops` for mixtures of experts and latent attention: the ops that a step of such a model spends
// its time in, at the sizes of DeepSeek-V2-Lite (L), Qwen3-30B-A3B (M) and a toy (T). And Routing: where the tokens of
// a case go. Plain values; usable from any thread.
#pragma once

#include "measurement/op_cases.h"

namespace reprise::measurement {

// Their names, single ops and fused ones.
std::vector<std::string> expert_ops();

// Empty for any other op.
std::vector<OpCase> expert_cases(const std::string& op, int64_t max_tokens);

// Every token goes to `per_token` different experts, chosen by a fixed random sequence: what moe_route gives for that.
// token: [tokens * per_token], the row of x that each sorted row reads; place: [tokens, per_token], the sorted row of
// each choice; starts: [experts + 1], the first row of each expert.
struct Routing {
  std::vector<int32_t> experts, token, place, starts;

  static Routing of(int64_t tokens, int64_t experts, int64_t per_token);
  // By the name of the operand that holds it; null for others.
  const std::vector<int32_t>* find(const std::string& operand) const;
};

}  // namespace reprise::measurement
