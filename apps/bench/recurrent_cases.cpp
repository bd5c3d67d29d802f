#include "bench/recurrent_cases.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/core.h"

namespace reprise::apps {
namespace {

struct DeltaSizes {
  const char* name;
  int64_t key_heads, heads, key, value, kernel;

  int64_t columns() const { return 2 * key_heads * key + heads * value; }
};
constexpr DeltaSizes kDeltaModels[] = {{"Qwen3-Next-80B-A3B", 16, 32, 128, 128, 4}, {"launch-bound", 1, 2, 32, 32, 4}};
// States of so many sequences are a gigabyte; more tokens than that are of one sequence.
constexpr int64_t kMostSequences = 256;

// A vision tower, and an encoder of texts.
struct EncoderSizes {
  const char* name;
  int64_t hidden, inner, heads, head_size;
};
constexpr EncoderSizes kEncoders[] = {
    {"Qwen3-VL-4B tower", 1024, 4096, 16, 64}, {"MiniLM-L6", 384, 1536, 12, 32}, {"launch-bound", 128, 256, 2, 64}};

TensorType rows(DType dtype, int64_t width) { return {dtype, {Dim(1, kCaseTokens), Dim(width)}}; }

// Each token another sequence's, or all of one. Slots to write to lie behind those to read from.
OpCase of_sequences(const std::string& op, const DeltaSizes& m, int64_t max_tokens, bool one) {
  OpCase c{op, m.name, "", {{"T", max_tokens}}, {}, {}};
  c.one_sequence = one;
  if (!one) c.symbols.insert(c.symbols.end(), {{"R", max_tokens}, {"Q", max_tokens + 1}});
  const int64_t slots = 2 * (one ? 1 : max_tokens);
  const Dim sequences = one ? Dim(1) : Dim(1, kCaseSequences), borders = one ? Dim(2) : Dim(1, kCaseBorders);
  const std::string whose = one ? "one sequence" : "a sequence each";
  const TensorType index{DType::I32, {sequences}};
  if (op == "causal_conv") {
    c.detail = fmt::format("{} columns, {}", m.columns(), whose);
    c.in = {{DType::F32, {Dim(slots), Dim(m.kernel - 1), Dim(m.columns())}},
            rows(kCaseDtype, m.columns()),
            {kCaseDtype, {Dim(m.columns()), Dim(1), Dim(m.kernel)}}};
  } else {
    c.detail = fmt::format("{}/{} heads, states of {} x {}, {}", m.heads, m.key_heads, m.key, m.value, whose);
    const TensorType head{DType::F32, {Dim(m.heads)}};
    c.in = {{DType::F32, {Dim(slots), Dim(m.heads), Dim(m.key), Dim(m.value)}},
            rows(kCaseDtype, m.columns()),
            rows(kCaseDtype, m.heads),
            rows(kCaseDtype, m.heads),
            head,
            head};
    c.attrs = {{"key_heads", m.key_heads}};
  }
  c.in.insert(c.in.end(), {index, index, {DType::I32, {borders}}});
  return c;
}

std::vector<OpCase> encoder_cases(const std::string& op, const EncoderSizes& m, int64_t max_tokens) {
  OpCase c{op, m.name, "", {{"T", max_tokens}}, {}, {}};
  const TensorType number{kCaseDtype, {Dim(m.hidden)}};
  if (op == "layer_norm") {
    c.in = {rows(kCaseDtype, m.hidden), number, number};
    c.attrs = {{"eps", 1e-6}};
  } else if (op == "gelu" || op == "gelu_tanh") {
    c.in = {rows(kCaseDtype, m.inner)};
  } else if (op == "segment_attention") {
    c.one_sequence = true;
    c.detail = fmt::format("{} heads of {}, one sequence", m.heads, m.head_size);
    const TensorType heads{kCaseDtype, {Dim(1, kCaseTokens), Dim(m.heads), Dim(m.head_size)}};
    c.in = {heads, heads, heads, {DType::I32, {Dim(2)}}};
    c.attrs = {{"scale", 1 / std::sqrt(static_cast<double>(m.head_size))}};
  } else {
    return {};
  }
  return {c};
}

}  // namespace

std::vector<std::string> recurrent_ops() {
  return {"causal_conv", "gated_delta", "segment_attention", "layer_norm", "gelu", "gelu_tanh"};
}

std::vector<OpCase> recurrent_cases(const std::string& op, int64_t max_tokens) {
  std::vector<OpCase> out;
  if (op == "causal_conv" || op == "gated_delta")
    for (const DeltaSizes& m : kDeltaModels)
      for (const bool one : {false, true})
        if (one || max_tokens <= kMostSequences) out.push_back(of_sequences(op, m, max_tokens, one));
  for (const EncoderSizes& m : kEncoders)
    for (OpCase& c : encoder_cases(op, m, max_tokens)) out.push_back(std::move(c));
  return out;
}

}  // namespace reprise::apps
