#include "measurement/op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/block_format.h"
#include "measurement/expert_cases.h"
#include "measurement/family_cases.h"
#include "measurement/recurrent_cases.h"
#include "ops/block_activations.h"
#include "ops/core.h"

namespace reprise::measurement {
namespace {

constexpr const char* kExample = "example";

struct ModelSizes {
  const char* name;
  int64_t hidden, inner, heads, kv_heads, head_size, vocabulary;
  double eps;
  bool qk_norm;
};

// The last one is a toy whose launches cost more than its work.
constexpr ModelSizes kModels[] = {
    {"SmolLM2-135M", 576, 1536, 9, 3, 64, 49152, 1e-5, false},
    {"Qwen3-0.6B", 1024, 3072, 16, 8, 128, 151936, 1e-6, true},
    {"launch-bound", 128, 256, 2, 1, 64, 2048, 1e-6, true},
};

const std::vector<std::string> kSingleOps{"linear",
                                          "linear_w8a8_static",
                                          "linear_w8a8_dynamic",
                                          "linear_blocks",
                                          "rms_norm",
                                          "rope",
                                          "paged_attention",
                                          "silu",
                                          "quantize_static",
                                          "quantize_dynamic",
                                          "add_rms_norm_quant_divided"};

class Maker {
 public:
  Maker(const ModelSizes& m, int64_t max_tokens) : m_(m), max_tokens_(max_tokens) {}

  std::vector<OpCase> make(const std::string& op) {
    const int64_t h = m_.hidden, f = m_.inner;
    if (op == "split_qk_norm_rope") return {qkv(op)};
    if (op == "split_qk_norm_rope_kv") return {qkv(op), qkv(op, DType::I8)};
    if (op == "add_rms_norm" || op == "add_rms_norm_quant_dynamic")
      return {{op, m_.name, "", t(), {rows(h), rows(h), vector(kCaseDtype, h)}, eps()}};
    if (op == "add_rms_norm_quant_static") {
      const TensorType scale = vector(DType::F32, h);
      return {{op, m_.name, "", t(), {rows(h), rows(h), vector(kCaseDtype, h), scale, scale}, eps()}};
    }
    if (op == "add_rms_norm_quant_divided") {
      const TensorType number = vector(kCaseDtype, h);
      return {{op, m_.name, "", t(), {rows(h), rows(h), vector(kCaseDtype, h), number, number}, eps()}};
    }
    if (op == "silu_mul" || op == "silu_mul_quant") return {{op, m_.name, "", t(), {rows(2 * f)}, {}}};
    if (op == "silu_mul_quant_static") {
      const TensorType scale = vector(DType::F32, 1);
      return {{op, m_.name, "", t(), {rows(2 * f), scale, scale}, {}}};
    }
    if (op == "linear_w8a8_static" || op == "linear_w8a8_dynamic")
      return {w8a8(op, "qkv", (m_.heads + 2 * m_.kv_heads) * m_.head_size, h),
              w8a8(op, "attention output", h, m_.heads * m_.head_size), w8a8(op, "gate and up", 2 * f, h),
              w8a8(op, "mlp output", h, f)};
    if (op == "lm_head_argmax_w8a8") {
      OpCase c = w8a8("linear_w8a8_dynamic", "", m_.vocabulary, h);
      c.op = op;
      c.attrs = {};
      return {c};
    }
    if (op == "linear_add")
      return {linear(op, "attention output", h, m_.heads * m_.head_size, true), linear(op, "mlp output", h, f, true)};
    if (op == "linear_silu_mul") return {linear(op, "gate and up", 2 * f, h, false)};
    if (op == "lm_head_argmax") return {{op, m_.name, "", t(), {rows(h), matrix(m_.vocabulary, h)}, {}}};
    if (op == "lm_head_argmax_blocks")
      return {{op,
               m_.name,
               "q8_0",
               t(),
               {rows(h), blocks(m_.vocabulary, h, BlockFormat::Q8_0)},
               {{"format", std::string("q8_0")}}}};
    if (op == "linear_blocks") {
      std::vector<OpCase> out;
      const int64_t qkv_rows = (m_.heads + 2 * m_.kv_heads) * m_.head_size;
      for (const BlockFormatInfo& b : kBlockFormats) {
        if (h % b.elements != 0) continue;
        using enum BlockFormat;
        if (b.format == Q5_0 || b.format == Q5_1 || b.format == IQ4_XS) continue;  // the groups of q5_k and iq4_nl
        const Attrs format{{"format", std::string(b.name)}};
        const std::string name(b.name);
        out.push_back({op, m_.name, name + " qkv", t(), {rows(h), blocks(qkv_rows, h, b.format)}, format});
        out.push_back({op, m_.name, name + " gate and up", t(), {rows(h), blocks(2 * f, h, b.format)}, format});
        if (b.format != Q8_0 && b.format != Q4_0 && b.format != Q4_K && b.format != Q6_K) continue;
        Attrs int8 = format;
        int8.set("activations", activations_attr(true));
        out.push_back({op, m_.name, name + " int8 gate and up", t(), {rows(h), blocks(2 * f, h, b.format)}, int8});
      }
      return out;
    }
    if (op == "linear") {
      const int64_t qkv_rows = (m_.heads + 2 * m_.kv_heads) * m_.head_size;
      return {linear(op, "qkv", qkv_rows, h, false), linear(op, "gate and up", 2 * f, h, false)};
    }
    if (op == "rms_norm") return {{op, m_.name, "", t(), {rows(h), vector(kCaseDtype, h)}, eps()}};
    if (op == "silu" || op == "quantize_dynamic") return {{op, m_.name, "", t(), {rows(f)}, {}}};
    if (op == "quantize_static") {
      const TensorType scale = vector(DType::F32, f);
      return {{op, m_.name, "", t(), {rows(f), scale, scale}, {}}};
    }
    if (op == "rope") return {{op, m_.name, heads_in_words(), t(), {heads(m_.heads), table()}, {}}};
    if (op == "paged_attention") return {attention(), attention(DType::I8)};
    return {};
  }

 private:
  std::vector<Symbol> t() const { return {{"T", max_tokens_}}; }
  Attrs eps() const { return {{"eps", m_.eps}}; }
  static TensorType rows(int64_t width) { return {kCaseDtype, {Dim(1, kCaseTokens), Dim(width)}}; }
  static TensorType vector(DType dtype, int64_t width) { return {dtype, {Dim(width)}}; }
  static TensorType matrix(int64_t rows, int64_t columns) { return {kCaseDtype, {Dim(rows), Dim(columns)}}; }
  static TensorType blocks(int64_t rows, int64_t columns, BlockFormat f) {
    return {DType::U8, {Dim(rows), Dim(columns / block_format_info(f).elements * block_format_info(f).bytes)}};
  }
  TensorType heads(int64_t n) const { return {kCaseDtype, {Dim(1, kCaseTokens), Dim(n), Dim(m_.head_size)}}; }
  TensorType table() const { return {DType::F32, {Dim(1, kCaseTokens), Dim(m_.head_size)}}; }
  TensorType cache(int64_t pages, DType dtype) const {
    return {dtype, {Dim(pages), Dim(2), Dim(m_.kv_heads), Dim(kPageTokens), Dim(kv_row(dtype, m_.head_size))}};
  }
  std::string heads_in_words() const { return fmt::format("{}/{} heads of {}", m_.heads, m_.kv_heads, m_.head_size); }

  static const char* kind_of(DType dtype) { return dtype == DType::I8 ? ", int8 cache" : ""; }

  OpCase qkv(const std::string& op, DType stored = kCaseDtype) const {
    OpCase c{op,  m_.name, heads_in_words() + kind_of(stored),
             t(), {},      {{"heads", m_.heads}, {"kv_heads", m_.kv_heads}}};
    const bool cached = op == "split_qk_norm_rope_kv";
    if (cached) c.in.push_back(cache(max_tokens_, stored));  // every token is another sequence's
    c.in.push_back(rows((m_.heads + 2 * m_.kv_heads) * m_.head_size));
    c.in.push_back(table());
    if (cached) c.in.push_back({DType::I32, {Dim(1, kCaseTokens)}});
    for (int i = 0; m_.qk_norm && i < 2; ++i) c.in.push_back(vector(kCaseDtype, m_.head_size));
    c.attrs.set("eps", m_.qk_norm ? m_.eps : 0.0);
    return c;
  }

  OpCase linear(const std::string& op, const char* place, int64_t n, int64_t k, bool residual) const {
    OpCase c{op, m_.name, place, t(), {rows(k), matrix(n, k)}, {}};
    if (residual) c.in.push_back(rows(n));
    return c;
  }

  OpCase w8a8(const std::string& op, const char* place, int64_t n, int64_t k) const {
    const TensorType x{DType::I8, {Dim(1, kCaseTokens), Dim(k)}}, weight{DType::I8, {Dim(n), Dim(k)}};
    OpCase c{op, m_.name, place, t(), {}, {{"out", std::string(dtype_name(kCaseDtype))}}};
    if (op == "linear_w8a8_static")
      c.in = {x, weight, vector(DType::F32, n), vector(DType::I32, n)};
    else
      c.in = {x, {DType::F32, {Dim(1, kCaseTokens), Dim(1)}}, weight, vector(DType::F32, n)};
    return c;
  }

  OpCase attention(DType stored = kCaseDtype) const {
    const int64_t context = OpCase{}.context, pages = context / kPageTokens;
    OpCase c{"paged_attention",
             m_.name,
             fmt::format("{}, {} keys each{}", heads_in_words(), context, kind_of(stored)),
             {{"T", max_tokens_}, {"R", max_tokens_}, {"Q", max_tokens_ + 1}},
             {heads(m_.heads), cache(max_tokens_ * pages, stored)},
             {{"scale", 1 / std::sqrt(static_cast<double>(m_.head_size))}}};
    c.in.push_back({DType::I32, {Dim(1, kCaseSequences), Dim(pages)}});
    c.in.push_back({DType::I32, {Dim(1, kCaseSequences)}});
    c.in.push_back({DType::I32, {Dim(1, kCaseBorders)}});
    return c;
  }

  const ModelSizes& m_;
  int64_t max_tokens_;
};

}  // namespace

LiveSizes OpCase::live(int64_t tokens) const {
  LiveSizes live;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const std::string& name = symbols[i].name;
    live.value[i + 1] = name == "T" || name == "R" ? tokens : name == "Q" ? tokens + 1 : symbols[i].bound;
  }
  return live;
}

LiveSizes OpCase::bounds() const {
  LiveSizes live;
  for (size_t i = 0; i < symbols.size(); ++i) live.value[i + 1] = symbols[i].bound;
  return live;
}

std::vector<std::string> benchmarked_ops(const nn::FusedOps& fused) {
  std::vector<std::string> out;
  for (const nn::FusedOp& op : fused.all()) out.emplace_back(op.name());
  out.insert(out.end(), kSingleOps.begin(), kSingleOps.end());
  for (auto& more : {expert_ops(), recurrent_ops(), family_ops()})
    for (const std::string& op : more)
      if (std::find(out.begin(), out.end(), op) == out.end()) out.push_back(op);
  return out;
}

std::vector<std::string> benchmarked_models(const nn::FusedOps& fused) {
  std::vector<std::string> out;
  for (const std::string& op : benchmarked_ops(fused))
    for (const OpCase& c : op_cases(op, fused, 1))
      if (c.model != kExample && std::find(out.begin(), out.end(), c.model) == out.end()) out.push_back(c.model);
  return out;
}

std::vector<OpCase> op_cases(const std::string& op, const nn::FusedOps& fused, int64_t max_tokens) {
  std::vector<OpCase> out;
  const nn::FusedOp* known = fused.find(op);
  for (const ModelSizes& m : kModels)
    for (OpCase& c : Maker(m, max_tokens).make(op)) out.push_back(std::move(c));
  for (OpCase& c : expert_cases(op, max_tokens)) out.push_back(std::move(c));
  for (OpCase& c : recurrent_cases(op, max_tokens)) out.push_back(std::move(c));
  for (OpCase& c : family_cases(op, max_tokens)) out.push_back(std::move(c));
  if (out.empty() && known)
    for (const nn::FusedExample& e : known->examples) {
      OpCase c{op, kExample, "", e.symbols, e.in, e.attrs};
      if (!c.symbols.empty()) c.symbols[0] = {"T", max_tokens};  // the first is the tokens in every example
      out.push_back(std::move(c));
    }
  for (OpCase& c : out) c.fused = known != nullptr;
  return out;
}

}  // namespace reprise::measurement
