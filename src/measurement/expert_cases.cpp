#include "measurement/expert_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/split_mix.h"
#include "ops/core.h"

namespace reprise::measurement {
namespace {

struct ExpertSizes {
  const char* name;
  int64_t hidden, experts, per_token, inner;
  bool normalised;
};
constexpr ExpertSizes kExpertModels[] = {{"DeepSeek-V2-Lite", 2048, 64, 6, 1408, false},
                                         {"Qwen3-30B-A3B", 2048, 128, 8, 768, true},
                                         {"launch-bound", 128, 8, 2, 64, true}};

struct LatentSizes {
  const char* name;
  int64_t heads, rank, rope, nope, value, context;
};
constexpr LatentSizes kLatentModels[] = {{"DeepSeek-V2-Lite", 16, 512, 64, 128, 128, 4096},
                                         {"launch-bound", 2, 64, 32, 32, 32, 512}};

TensorType rows(DType dtype, int64_t each, int64_t width) { return {dtype, {Dim(each, kCaseTokens), Dim(width)}}; }

OpCase expert_case(const std::string& op, const ExpertSizes& m, int64_t max_tokens, std::string detail) {
  OpCase c{op, m.name, std::move(detail), {{"T", max_tokens}}, {}, {}};
  c.experts = m.experts;
  c.per_token = m.per_token;
  return c;
}

// "64 experts, 6 a token: gate and up"
std::string detail_of(const ExpertSizes& m, const char* place = nullptr) {
  return fmt::format("{} experts, {} a token{}{}", m.experts, m.per_token, place ? ": " : "", place ? place : "");
}

// Gate and up read the tokens' rows by way of `token`, the output projection reads rows that are sorted.
OpCase product(const std::string& op, const ExpertSizes& m, int64_t max_tokens, const char* place, int64_t n,
               int64_t k) {
  OpCase c = expert_case(op, m, max_tokens, detail_of(m, place));
  const TensorType starts{DType::I32, {Dim(m.experts + 1)}}, scale{DType::F32, {Dim(m.experts * n)}};
  const bool int8 = op == "grouped_linear_w8a8_dynamic" || op == "grouped_silu_mul_quant";
  const DType dtype = int8 ? DType::I8 : kCaseDtype;
  const TensorType weight{dtype, {Dim(m.experts), Dim(n), Dim(k)}};
  if (op == "grouped_linear_rows")
    c.in = {rows(dtype, 1, k), {DType::I32, {Dim(m.per_token, kCaseTokens)}}, starts, weight};
  else if (int8)
    c.in = {rows(dtype, m.per_token, k), rows(DType::F32, m.per_token, 1), starts, weight, scale};
  else
    c.in = {rows(dtype, m.per_token, k), starts, weight};
  c.attrs = {{"shard", std::string("none")}};
  if (int8) c.attrs.set("out", std::string(dtype_name(kCaseDtype)));
  return c;
}

std::vector<OpCase> cases_of(const std::string& op, const ExpertSizes& m, int64_t max_tokens) {
  const TensorType chosen = rows(DType::I32, 1, m.per_token);
  if (op == "grouped_linear_rows") return {product(op, m, max_tokens, "gate and up", 2 * m.inner, m.hidden)};
  if (op == "grouped_silu_mul_quant") return {product(op, m, max_tokens, "gate and up", 2 * m.inner, m.hidden)};
  if (op == "grouped_linear") return {product(op, m, max_tokens, "output", m.hidden, m.inner)};
  if (op == "grouped_linear_w8a8_dynamic")
    return {product(op, m, max_tokens, "gate and up", 2 * m.inner, m.hidden),
            product(op, m, max_tokens, "output", m.hidden, m.inner)};
  OpCase c = expert_case(op, m, max_tokens, detail_of(m));
  if (op == "moe_gate") {
    c.in = {rows(DType::F32, 1, m.experts), {DType::I32, {Dim(1, kCaseTokens)}}};
    c.attrs = {{"top_k", m.per_token}, {"normalise", int64_t{m.normalised}}};
  } else if (op == "moe_route") {
    c.in = {chosen};
    c.attrs = {{"first", int64_t{0}}, {"count", m.experts}};
  } else if (op == "moe_combine") {
    c.in = {rows(kCaseDtype, m.per_token, m.hidden), rows(DType::F32, 1, m.per_token), chosen};
  } else {
    return {};
  }
  return {c};
}

std::vector<OpCase> cases_of(const std::string& op, const LatentSizes& m, int64_t max_tokens) {
  const auto heads = [&](int64_t width) {
    return TensorType{kCaseDtype, {Dim(1, kCaseTokens), Dim(m.heads), Dim(width)}};
  };
  OpCase c{op, m.name, "", {{"T", max_tokens}}, {}, {}};
  if (op == "per_head_matmul") {
    const auto projection = [&](const char* place, int64_t n, int64_t k) {
      OpCase one = c;
      one.detail = fmt::format("{} heads: {}", m.heads, place);
      one.in = {heads(k), {kCaseDtype, {Dim(m.heads), Dim(n), Dim(k)}}};
      return one;
    };
    return {projection("queries to latents", m.rank, m.nope), projection("latents to values", m.value, m.rank)};
  }
  if (op != "latent_attention") return {};
  c.context = m.context;
  const int64_t pages = m.context / kPageTokens;
  const auto cache = [&](int64_t width) {
    return TensorType{kCaseDtype, {Dim(max_tokens * pages), Dim(kPageTokens), Dim(width)}};
  };
  c.detail = fmt::format("{} heads, latents of {} + {}, {} keys each", m.heads, m.rank, m.rope, m.context);
  c.symbols = {{"T", max_tokens}, {"R", max_tokens}, {"Q", max_tokens + 1}};
  c.in = {heads(m.rank),
          heads(m.rope),
          cache(m.rank),
          cache(m.rope),
          {DType::I32, {Dim(1, kCaseSequences), Dim(pages)}},
          {DType::I32, {Dim(1, kCaseSequences)}},
          {DType::I32, {Dim(1, kCaseBorders)}}};
  c.attrs = {{"scale", 1 / std::sqrt(static_cast<double>(m.nope + m.rope))}};
  return {c};
}

}  // namespace

std::vector<std::string> expert_ops() {
  return {"grouped_linear_rows",
          "grouped_linear",
          "grouped_linear_w8a8_dynamic",
          "grouped_silu_mul_quant",
          "moe_gate",
          "moe_route",
          "moe_combine",
          "per_head_matmul",
          "latent_attention"};
}

std::vector<OpCase> expert_cases(const std::string& op, int64_t max_tokens) {
  std::vector<OpCase> out;
  for (const ExpertSizes& m : kExpertModels)
    for (OpCase& c : cases_of(op, m, max_tokens)) out.push_back(std::move(c));
  for (const LatentSizes& m : kLatentModels)
    for (OpCase& c : cases_of(op, m, max_tokens)) out.push_back(std::move(c));
  return out;
}

Routing Routing::of(int64_t tokens, int64_t experts, int64_t per_token) {
  Routing r;
  std::vector<int32_t> all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  uint64_t seed = 0;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < per_token; ++j) {  // the first places of a shuffle
      const auto left = static_cast<uint64_t>(experts - j);
      const auto pick = static_cast<size_t>(j) + static_cast<size_t>(split_mix(seed += kSplitMixStep) % left);
      std::swap(all[static_cast<size_t>(j)], all[pick]);
      r.experts.push_back(all[static_cast<size_t>(j)]);
    }
  r.starts.assign(static_cast<size_t>(experts) + 1, 0);
  for (const int32_t e : r.experts) ++r.starts[static_cast<size_t>(e) + 1];
  std::partial_sum(r.starts.begin(), r.starts.end(), r.starts.begin());
  std::vector<int32_t> next = r.starts;
  r.token.resize(r.experts.size());
  for (size_t i = 0; i < r.experts.size(); ++i) {
    const int32_t row = next[static_cast<size_t>(r.experts[i])]++;
    r.place.push_back(row);
    r.token[static_cast<size_t>(row)] = static_cast<int32_t>(i / static_cast<size_t>(per_token));
  }
  return r;
}

const std::vector<int32_t>* Routing::find(const std::string& operand) const {
  return operand == "experts"  ? &experts
         : operand == "token"  ? &token
         : operand == "place"  ? &place
         : operand == "starts" ? &starts
                               : nullptr;
}

}  // namespace reprise::measurement
