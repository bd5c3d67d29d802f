#include "checkpoint/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace reprise::checkpoint {
namespace {

constexpr GgufTensorName kTop[] = {
    {"token_embd.", "model.embed_tokens."},
    {"output_norm.", "model.norm."},
    {"output.", "lm_head."},
    {"cls.output.", "score."},
};

constexpr std::string_view kQueries = "attn_q.", kKeys = "attn_k.";

constexpr GgufTensorName kLayer[] = {
    {"attn_norm.", "input_layernorm."},
    {kQueries, "self_attn.q_proj."},
    {kKeys, "self_attn.k_proj."},
    {"attn_v.", "self_attn.v_proj."},
    {"attn_output.", "self_attn.o_proj."},
    {"attn_q_norm.", "self_attn.q_norm."},
    {"attn_k_norm.", "self_attn.k_norm."},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_norm.", "post_attention_layernorm."},
    {"ffn_gate.", "mlp.gate_proj."},
    {"ffn_up.", "mlp.up_proj."},
    {"ffn_down.", "mlp.down_proj."},
    // Norms behind the branches, or the second of two.
    {"post_attention_norm.", "post_attention_layernorm."},
    {"post_ffw_norm.", "post_feedforward_layernorm."},
    // Experts.
    {"ffn_gate_inp.", "mlp.gate."},
    {"ffn_gate_exps.", "mlp.experts.gate_proj."},
    {"ffn_up_exps.", "mlp.experts.up_proj."},
    {"ffn_down_exps.", "mlp.experts.down_proj."},
    {"ffn_gate_up_exps.", "mlp.experts.gate_up_proj."},
    {"ffn_gate_shexp.", "mlp.shared_expert.gate_proj."},
    {"ffn_up_shexp.", "mlp.shared_expert.up_proj."},
    {"ffn_down_shexp.", "mlp.shared_expert.down_proj."},
    {"ffn_gate_inp_shexp.", "mlp.shared_expert_gate."},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    // Latent attention; newer files have kv_b_proj in two parts.
    {"attn_q_a.", "self_attn.q_a_proj."},
    {"attn_q_a_norm.", "self_attn.q_a_layernorm."},
    {"attn_q_b.", "self_attn.q_b_proj."},
    {"attn_kv_a_mqa.", "self_attn.kv_a_proj_with_mqa."},
    {"attn_kv_a_norm.", "self_attn.kv_a_layernorm."},
    {"attn_kv_b.", "self_attn.kv_b_proj."},
    {"attn_k_b.", "self_attn.k_b_proj."},
    {"attn_v_b.", "self_attn.v_b_proj."},
    // Layers that predict further tokens.
    {"nextn.eh_proj.", "eh_proj."},
    {"nextn.embed_tokens.", "embed_tokens."},
    {"nextn.enorm.", "enorm."},
    {"nextn.hnorm.", "hnorm."},
    {"nextn.shared_head_head.", "shared_head.head."},
    {"nextn.shared_head_norm.", "shared_head.norm."},
};

bool fits(const GgufTensorName& n, std::string_view name) {
  if (!n.gguf.ends_with('.')) return name == n.gguf;
  if (!name.starts_with(n.gguf)) return false;
  name.remove_prefix(n.gguf.size());
  return name == "weight" || name == "bias";
}

// Takes "blk." and a number of at most five digits off; false: there is none, but the name begins as if.
bool take_layer(std::string_view& name, std::string_view& layer) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return true;
  constexpr size_t kMostDigits = 5;
  const std::string_view rest = name.substr(kBlock.size());
  const size_t dot = rest.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot > kMostDigits || (dot > 1 && rest[0] == '0')) return false;
  layer = rest.substr(0, dot);
  name = rest.substr(dot + 1);
  return std::all_of(layer.begin(), layer.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// What a tensor has of the tiled heads: _LinearAttentionVReorderBase::modify_tensors of llama.cpp's conversion/qwen.py.
TiledHeads tiled_heads(TiledPart part, const GgufModelShape& model) {
  TiledHeads out = model.tiled;
  switch (part) {
    case TiledPart::None: return {};
    case TiledPart::Rows: break;
    case TiledPart::RowsBehindKeys: out.first = 2 * out.key_heads * model.key; break;
    case TiledPart::Numbers: out.size = 1; break;
    case TiledPart::Columns: out.columns = true; break;
  }
  return out;
}

}  // namespace

bool tiles_heads(const GgufFamily& family) {
  return std::any_of(family.tensors.begin(), family.tensors.end(),
                     [](const GgufTensorName& n) { return n.tiled != TiledPart::None; });
}

std::optional<HfName> hf_name(std::string_view gguf_name, const GgufModelShape& model) {
  std::string_view layer;
  if (!take_layer(gguf_name, layer)) return std::nullopt;
  const GgufTensorName* found = nullptr;
  const std::span<const GgufTensorName> usual = layer.empty() ? std::span<const GgufTensorName>(kTop) : kLayer;
  for (const auto& names : {model.family.tensors, usual})
    for (const GgufTensorName& n : names)
      if (!found && fits(n, gguf_name)) found = &n;
  if (!found) return std::nullopt;
  const std::string_view kind = found->gguf.ends_with('.') ? gguf_name.substr(found->gguf.size()) : std::string_view();
  HfName out{fmt::format("{}{}", found->hf, kind)};
  const bool centred = model.family.centred_norms && out.name.ends_with("norm.weight");
  out.number = found->number.value_or(centred ? StoredNumber::OneMore : StoredNumber::Plain);
  if (layer.empty()) return out;
  out.name = fmt::format("{}{}.{}", model.family.layers, layer, out.name);
  if (model.family.interleaved_heads && found->gguf == kQueries) out.interleaved_heads = model.heads;
  if (model.family.interleaved_heads && found->gguf == kKeys) out.interleaved_heads = model.kv_heads;
  if (model.tiled) out.tiled = tiled_heads(found->tiled, model);
  return out;
}

}  // namespace reprise::checkpoint
