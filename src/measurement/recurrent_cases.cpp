#include "measurement/recurrent_cases.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/core.h"

namespace reprise::measurement {
namespace {

struct DeltaSizes {
  const char* name;
  int64_t key_heads, heads, key, value, kernel;

  int64_t columns() const { return 2 * key_heads * key + heads * value; }
};
constexpr DeltaSizes kDeltaModels[] = {{"Qwen3-Next-80B-A3B", 16, 32, 128, 128, 4}, {"launch-bound", 1, 2, 32, 32, 4}};
// Mamba-2.
struct SpaceSizes {
  const char* name;
  int64_t heads, head, groups, state, kernel;

  int64_t columns() const { return heads * head + 2 * groups * state; }
};
constexpr SpaceSizes kSpaceModels[] = {{"Granite-4.0-H-Tiny", 48, 64, 1, 128, 4},
                                       {"Nemotron-Nano-9B-v2", 128, 80, 8, 128, 4},
                                       {"launch-bound", 2, 32, 1, 32, 4}};

// A vision tower, and an encoder of texts.
struct EncoderSizes {
  const char* name;
  int64_t hidden, inner, heads, head_size;
};
constexpr EncoderSizes kEncoders[] = {
    {"Qwen3-VL-4B tower", 1024, 4096, 16, 64}, {"MiniLM-L6", 384, 1536, 12, 32}, {"launch-bound", 128, 256, 2, 64}};

TensorType rows(DType dtype, int64_t width) { return {dtype, {Dim(1, kCaseTokens), Dim(width)}}; }

// Each token another sequence's, or all of one. Slots to write to lie behind those to read from.
OpCase case_of_sequences(const std::string& op, const char* model, int64_t max_tokens, bool one) {
  OpCase c{op, model, "", {{"T", max_tokens}}, {}, {}};
  c.one_sequence = one;
  if (!one) c.symbols.insert(c.symbols.end(), {{"R", max_tokens}, {"Q", max_tokens + 1}});
  return c;
}
int64_t slots_of(int64_t max_tokens, bool one) { return 2 * (one ? 1 : max_tokens); }
const char* whose(bool one) { return one ? "one sequence" : "a sequence each"; }
void add_sequences(OpCase& c, bool one) {
  const Dim sequences = one ? Dim(1) : Dim(1, kCaseSequences), borders = one ? Dim(2) : Dim(1, kCaseBorders);
  const TensorType index{DType::I32, {sequences}};
  c.in.insert(c.in.end(), {index, index, {DType::I32, {borders}}});
}

OpCase of_delta(const std::string& op, const DeltaSizes& m, int64_t max_tokens, bool one) {
  OpCase c = case_of_sequences(op, m.name, max_tokens, one);
  const int64_t slots = slots_of(max_tokens, one);
  if (op == "causal_conv") {
    c.detail = fmt::format("{} columns, {}", m.columns(), whose(one));
    c.in = {{DType::F32, {Dim(slots), Dim(m.kernel - 1), Dim(m.columns())}},
            rows(kCaseDtype, m.columns()),
            {kCaseDtype, {Dim(m.columns()), Dim(1), Dim(m.kernel)}}};
  } else {
    c.detail = fmt::format("{}/{} heads, states of {} x {}, {}", m.heads, m.key_heads, m.key, m.value, whose(one));
    const TensorType head{DType::F32, {Dim(m.heads)}};
    c.in = {{DType::F32, {Dim(slots), Dim(m.heads), Dim(m.key), Dim(m.value)}},
            rows(kCaseDtype, m.columns()),
            rows(kCaseDtype, m.heads),
            rows(kCaseDtype, m.heads),
            head,
            head};
    c.attrs = {{"key_heads", m.key_heads}};
  }
  add_sequences(c, one);
  return c;
}

OpCase of_space(const std::string& op, const SpaceSizes& m, int64_t max_tokens, bool one) {
  OpCase c = case_of_sequences(op, m.name, max_tokens, one);
  const int64_t slots = slots_of(max_tokens, one);
  if (op == "causal_conv_biased") {
    c.detail = fmt::format("{} columns, {}", m.columns(), whose(one));
    c.in = {{DType::F32, {Dim(slots), Dim(m.kernel - 1), Dim(m.columns())}},
            rows(kCaseDtype, m.columns()),
            {kCaseDtype, {Dim(m.columns()), Dim(1), Dim(m.kernel)}},
            {kCaseDtype, {Dim(m.columns())}}};
  } else {
    c.detail = fmt::format("{} heads in {}, states of {} x {}, {}", m.heads, m.groups, m.state, m.head, whose(one));
    const TensorType head{DType::F32, {Dim(m.heads)}};
    c.in = {{DType::F32, {Dim(slots), Dim(m.heads), Dim(m.state), Dim(m.head)}},
            rows(kCaseDtype, m.columns()),
            rows(kCaseDtype, m.heads),
            head,
            head,
            head};
    c.attrs = {{"groups", m.groups}};
  }
  add_sequences(c, one);
  return c;
}

OpCase gated_norm(const SpaceSizes& m, int64_t max_tokens) {
  OpCase c{"rms_norm_gated", m.name, fmt::format("{} groups", m.groups), {{"T", max_tokens}}, {}, {}};
  const int64_t width = m.heads * m.head;
  c.in = {rows(kCaseDtype, width), rows(kCaseDtype, width), {kCaseDtype, {Dim(width)}}};
  c.attrs = {{"groups", m.groups}, {"eps", 1e-5}};
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
  return {"causal_conv", "gated_delta", "causal_conv_biased", "state_space", "rms_norm_gated", "segment_attention",
          "layer_norm",  "gelu",        "gelu_tanh"};
}

std::vector<OpCase> recurrent_cases(const std::string& op, int64_t max_tokens) {
  std::vector<OpCase> out;
  if (op == "causal_conv" || op == "gated_delta")
    for (const DeltaSizes& m : kDeltaModels)
      for (const bool one : {false, true})
        if (one || max_tokens <= kMostSequences) out.push_back(of_delta(op, m, max_tokens, one));
  for (const SpaceSizes& m : kSpaceModels) {
    if (op == "causal_conv_biased" || op == "state_space")
      for (const bool one : {false, true})
        if (one || max_tokens <= kMostSequences) out.push_back(of_space(op, m, max_tokens, one));
    if (op == "rms_norm_gated") out.push_back(gated_norm(m, max_tokens));
  }
  for (const EncoderSizes& m : kEncoders)
    for (OpCase& c : encoder_cases(op, m, max_tokens)) out.push_back(std::move(c));
  return out;
}

}  // namespace reprise::measurement
