#include "measurement/family_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/block_format.h"
#include "ops/core.h"

namespace reprise::measurement {
namespace {

constexpr const char* kToy = "launch-bound";

struct AttentionSizes {
  const char* name;
  int64_t heads, kv_heads, head_size;
  int64_t context;  // keys of each sequence in a decode step; 0: op_cases.cpp has that step
  int64_t window = 0;
  double cap = 0;
  bool sinks = false;
};
constexpr AttentionSizes kAttention[] = {{"Qwen3-0.6B", 16, 8, 128, 0},
                                         {"gpt-oss-20b", 64, 8, 64, 1024, 0, 0, true},
                                         {"gpt-oss-20b", 64, 8, 64, 1024, 128, 0, true},
                                         {"Gemma-2-2B", 8, 4, 256, 1024, 0, 50},
                                         {"Gemma-3-1B", 4, 1, 256, 1024, 512},
                                         {kToy, 2, 1, 64, 256, 128, 8, true}};

// Ops on rows of so many numbers. `each`: rows of a token, which goes to as many experts.
struct RowSizes {
  const char *op, *name, *place;
  int64_t width, each = 1;
};
constexpr RowSizes kRowOps[] = {{"gelu_tanh", "Gemma-2-2B", "mlp", 9216},
                                {"relu_squared", "Nemotron-Nano-9B-v2", "mlp", 15680},
                                {"relu_squared", kToy, "", 256},
                                {"swiglu_clamped", "gpt-oss-20b", "experts", 2880, 4},
                                {"swiglu_clamped", kToy, "", 64, 2},
                                {"scale", "Granite-3.3-2B", "embeddings", 2048},
                                {"scale", kToy, "", 128},
                                {"softcap", "Gemma-2-2B", "logits", 256000},
                                {"softcap", kToy, "", 2048},
                                {"scale_rows", "Ministral-3-3B", "queries", 4096},
                                {"scale_rows", kToy, "", 128},
                                {"layer_norm", "StarCoder2-3B", "with bias", 3072},
                                {"layer_norm", "Command-R7B", "without bias", 4096},
                                {"rms_norm_centred", "Gemma-2-2B", "", 2304},
                                {"rms_norm_centred", kToy, "", 128},
                                {"pool_rows", "MiniLM-L6", "mean", 384},
                                {"pool_rows", kToy, "mean", 128},
                                {"index_select", "Qwen3-VL-4B", "rows of images", 2560},
                                {"index_select", kToy, "", 128}};

// Numbers of a head that turn: so many of its first ones.
struct TurnSizes {
  const char *name, *detail;
  int64_t heads, head_size, turned, interleaved = 0;
};
constexpr TurnSizes kTurns[] = {{"GLM-4-9B", "the first 64 of 128, neighbours", 32, 128, 64, 1},
                                {"Phi-4-mini", "the first 96 of 128, halves", 24, 128, 96},
                                {"Qwen3-Next-80B-A3B", "the first 64 of 256, halves", 16, 256, 64}};

// Tables of cosines and sines of positions in time, height and width (M-RoPE).
struct AxisSizes {
  const char* name;
  int64_t frequencies;
};
constexpr AxisSizes kAxes[] = {{"Qwen3-VL-4B", 64}, {kToy, 16}};

// Experts with biases and weights in blocks of MXFP4.
struct BlockExperts {
  const char* name;
  int64_t hidden, experts, per_token, inner;
};
constexpr BlockExperts kBlockExperts[] = {{"gpt-oss-20b", 2880, 32, 4, 2880}, {kToy, 128, 8, 2, 64}};

TensorType row_type(DType dtype, int64_t each, int64_t width) { return {dtype, {Dim(each, kCaseTokens), Dim(width)}}; }
TensorType number_type(DType dtype, int64_t width) { return {dtype, {Dim(width)}}; }
const TensorType kPerToken{DType::I32, {Dim(1, kCaseTokens)}};

OpCase case_of(const std::string& op, const char* model, std::string detail, int64_t max_tokens, bool one = true) {
  OpCase c{op, model, std::move(detail), {{"T", max_tokens}}, {}, {}};
  if (!one) c.symbols.insert(c.symbols.end(), {{"R", max_tokens}, {"Q", max_tokens + 1}});
  return c;
}

std::string attention_detail(const AttentionSizes& m, bool one) {
  std::string out = fmt::format("{}/{} heads of {}", m.heads, m.kv_heads, m.head_size);
  out += one ? ", a prompt" : fmt::format(", {} keys each", m.context);
  if (m.window > 0) out += fmt::format(", window {}", m.window);
  if (m.cap > 0) out += ", cap";
  if (m.sinks) out += ", sinks";
  return out;
}

// One row of each of many sequences, or all rows of one prompt.
OpCase attention(const AttentionSizes& m, int64_t max_tokens, bool one) {
  OpCase c = case_of("paged_attention", m.name, attention_detail(m, one), max_tokens, one);
  c.one_sequence = one;
  c.context = m.context;
  const int64_t pages = ((one ? max_tokens : m.context) + kPageTokens - 1) / kPageTokens;
  const Dim sequences = one ? Dim(1) : Dim(1, kCaseSequences), borders = one ? Dim(2) : Dim(1, kCaseBorders);
  c.in = {{kCaseDtype, {Dim(1, kCaseTokens), Dim(m.heads), Dim(m.head_size)}},
          {kCaseDtype,
           {Dim(one ? pages : max_tokens * pages), Dim(2), Dim(m.kv_heads), Dim(kPageTokens), Dim(m.head_size)}},
          {DType::I32, {sequences, Dim(pages)}},
          {DType::I32, {sequences}},
          {DType::I32, {borders}}};
  if (m.sinks) c.in.push_back(number_type(DType::F32, m.heads));
  c.attrs = {{"scale", 1 / std::sqrt(static_cast<double>(m.head_size))}, {"window", m.window}, {"softcap", m.cap}};
  return c;
}

OpCase of_rows(const RowSizes& m, int64_t max_tokens) {
  OpCase c = case_of(m.op, m.name, m.place, max_tokens);
  const std::string op = m.op;
  const TensorType x = row_type(kCaseDtype, m.each, m.width), number = number_type(kCaseDtype, m.width);
  c.in = {x};
  if (op == "swiglu_clamped") {
    c.in = {x, x};
    c.attrs = {{"alpha", 1.702}, {"limit", 7.0}};
  } else if (op == "scale") {
    c.attrs = {{"by", 12.0}};
  } else if (op == "softcap") {  // logits are in fp32 whatever the model is in
    c.in = {row_type(DType::F32, 1, m.width)};
    c.attrs = {{"cap", 30.0}};
  } else if (op == "scale_rows") {
    c.in.push_back(row_type(DType::F32, 1, 1));
  } else if (op == "layer_norm") {
    c.in.push_back(number);
    if (std::string_view(m.place) == "with bias") c.in.push_back(number);
    c.attrs = {{"eps", 1e-5}};
  } else if (op == "rms_norm_centred") {
    c.in.push_back(number);
    c.attrs = {{"eps", 1e-6}};
  } else if (op == "pool_rows") {
    c.one_sequence = true;
    c.in.insert(c.in.end(), {{DType::I32, {Dim(2)}}, {DType::I32, {Dim(1)}}});
    c.attrs = {{"kind", std::string("mean")}};
  } else if (op == "index_select") {
    c.in.push_back(kPerToken);
  }
  return c;
}

OpCase turn(const TurnSizes& m, int64_t max_tokens) {
  OpCase c = case_of("rope", m.name, fmt::format("{} heads, {}", m.heads, m.detail), max_tokens);
  c.in = {{kCaseDtype, {Dim(1, kCaseTokens), Dim(m.heads), Dim(m.head_size)}}, row_type(DType::F32, 1, m.turned)};
  c.attrs = {{"interleaved", m.interleaved}};
  return c;
}

OpCase axes(const AxisSizes& m, int64_t max_tokens) {
  OpCase c =
      case_of("rope_table_axes", m.name, fmt::format("{} frequencies, three positions", m.frequencies), max_tokens);
  std::vector<double> frequencies, of;
  for (int64_t i = 0; i < m.frequencies; ++i) {
    frequencies.push_back(std::pow(5e6, -static_cast<double>(i) / static_cast<double>(m.frequencies)));
    of.push_back(static_cast<double>(i % 3));
  }
  c.in = {row_type(DType::I32, 1, 3)};
  c.attrs = {{"inv_freq", frequencies}, {"axes", of}};
  return c;
}

// Queries times a factor of their positions, as in Ministral 3.
OpCase temperature(const char* model, int64_t max_tokens) {
  OpCase c = case_of("position_scale", model, "", max_tokens);
  std::vector<double> factors;
  for (int period = 0; period < 16; ++period) factors.push_back(1 + 0.1 * std::log1p(period));
  c.in = {kPerToken};
  c.attrs = {{"factors", factors}, {"period", int64_t{16384}}};
  return c;
}

OpCase of_experts(const std::string& op, const BlockExperts& m, int64_t max_tokens, const char* place, int64_t n,
                  int64_t k) {
  OpCase c = case_of(op, m.name, fmt::format("{} experts, {} a token: {}", m.experts, m.per_token, place), max_tokens);
  c.experts = m.experts;
  c.per_token = m.per_token;
  const TensorType starts{DType::I32, {Dim(m.experts + 1)}};
  if (op == "add_groups") {
    c.in = {row_type(kCaseDtype, m.per_token, n), starts, {kCaseDtype, {Dim(m.experts), Dim(n)}}};
    return c;
  }
  const BlockFormatInfo& format = block_format_info(BlockFormat::Mxfp4);
  c.in = {row_type(kCaseDtype, m.per_token, k),
          starts,
          {DType::U8, {Dim(m.experts), Dim(n), Dim(k / format.elements * format.bytes)}}};
  c.attrs = {{"format", std::string(format.name)}, {"shard", std::string("none")}};
  return c;
}

}  // namespace

std::vector<std::string> family_ops() {
  std::vector<std::string> out{"position_scale", "rope_table_axes", "add_groups", "grouped_linear_blocks"};
  for (const RowSizes& m : kRowOps)
    if (std::find(out.begin(), out.end(), m.op) == out.end()) out.emplace_back(m.op);
  return out;
}

std::vector<OpCase> family_cases(const std::string& op, int64_t max_tokens) {
  std::vector<OpCase> out;
  if (op == "paged_attention")
    for (const AttentionSizes& m : kAttention)
      for (const bool one : {false, true})
        if (one || (m.context > 0 && max_tokens <= kMostSequences)) out.push_back(attention(m, max_tokens, one));
  if (op == "rope")
    for (const TurnSizes& m : kTurns) out.push_back(turn(m, max_tokens));
  if (op == "rope_table_axes")
    for (const AxisSizes& m : kAxes) out.push_back(axes(m, max_tokens));
  if (op == "position_scale")
    for (const char* model : {"Ministral-3-3B", kToy}) out.push_back(temperature(model, max_tokens));
  if (op == "add_groups" || op == "grouped_linear_blocks")
    for (const BlockExperts& m : kBlockExperts) {
      out.push_back(of_experts(op, m, max_tokens, "gate and up", 2 * m.inner, m.hidden));
      out.push_back(of_experts(op, m, max_tokens, "output", m.hidden, m.inner));
    }
  for (const RowSizes& m : kRowOps)
    if (op == m.op) out.push_back(of_rows(m, max_tokens));
  return out;
}

}  // namespace reprise::measurement
