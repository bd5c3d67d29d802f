#include "checkpoint/gguf_names.h"

#include <fmt/format.h>

#include <utility>

namespace reprise::checkpoint {
namespace {

struct Pair {
  std::string_view gguf, hf;
};

constexpr Pair kTop[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};

constexpr Pair kLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},       {"ffn_gate_inp", "mlp.gate"},
};

struct Parts {
  std::string_view layer;  // digits, "" outside layers
  std::string_view stem;
  std::string_view suffix;  // ".weight" or ".bias"
};

// Splits PREFIX + digits + "." + stem + suffix, or stem + suffix.
std::optional<Parts> split(std::string_view name, std::string_view prefix) {
  Parts parts;
  for (std::string_view suffix : {".weight", ".bias"})
    if (name.ends_with(suffix)) parts.suffix = suffix;
  if (parts.suffix.empty()) return std::nullopt;
  name.remove_suffix(parts.suffix.size());
  if (name.starts_with(prefix)) {
    name.remove_prefix(prefix.size());
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos || dot == 0 || dot > 5) return std::nullopt;
    parts.layer = name.substr(0, dot);
    for (char c : parts.layer)
      if (c < '0' || c > '9') return std::nullopt;
    if (parts.layer.size() > 1 && parts.layer[0] == '0') return std::nullopt;
    name.remove_prefix(dot + 1);
  }
  parts.stem = name;
  return parts;
}

}  // namespace

std::optional<GgufName> gguf_name(std::string_view hf_name, const GgufModelShape& model) {
  const std::optional<Parts> parts = split(hf_name, "model.layers.");
  if (!parts) return std::nullopt;
  if (parts->layer.empty()) {
    for (const Pair& p : kTop)
      if (p.hf == parts->stem) return GgufName{fmt::format("{}{}", p.gguf, parts->suffix)};
    return std::nullopt;
  }
  for (const Pair& p : kLayer) {
    if (p.hf != parts->stem) continue;
    GgufName name{fmt::format("blk.{}.{}{}", parts->layer, p.gguf, parts->suffix)};
    if (model.architecture == "llama" || model.architecture == "mistral") {
      if (p.gguf == "attn_q") name.interleaved_heads = model.heads;
      if (p.gguf == "attn_k") name.interleaved_heads = model.kv_heads;
    }
    return name;
  }
  return std::nullopt;
}

std::optional<std::string> hf_name(std::string_view gguf_name) {
  const std::optional<Parts> parts = split(gguf_name, "blk.");
  if (!parts) return std::nullopt;
  if (parts->layer.empty()) {
    for (const Pair& p : kTop)
      if (p.gguf == parts->stem) return fmt::format("{}{}", p.hf, parts->suffix);
    return std::nullopt;
  }
  for (const Pair& p : kLayer)
    if (p.gguf == parts->stem) return fmt::format("model.layers.{}.{}{}", parts->layer, p.hf, parts->suffix);
  return std::nullopt;
}

}  // namespace reprise::checkpoint
