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
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_sinks", "self_attn.sinks"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    // Experts; shared ones are "shared_experts" in DeepSeek's models.
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
    {"ffn_gate_up_exps", "mlp.experts.gate_up_proj"},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
    {"exp_probs_b", "mlp.gate.e_score_correction"},
    // Latent attention; newer files have kv_b_proj in two parts.
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_k_b", "self_attn.k_b_proj"},
    {"attn_v_b", "self_attn.v_b_proj"},
    // Layers that predict further tokens.
    {"nextn.eh_proj", "eh_proj"},
    {"nextn.embed_tokens", "embed_tokens"},
    {"nextn.enorm", "enorm"},
    {"nextn.hnorm", "hnorm"},
    {"nextn.shared_head_head", "shared_head.head"},
    {"nextn.shared_head_norm", "shared_head.norm"},
};

// What means something else in files of some architectures, separated by spaces.
struct OwnPair {
  std::string_view architectures, gguf, hf;
};

constexpr std::string_view kTiled = "qwen35 qwen35moe", kDeltaNets = "qwen3next qwen35 qwen35moe";

constexpr OwnPair kOfSome[] = {
    {"gemma2 gemma3 olmo2 exaone4 seed_oss gpt-oss glm4moe qwen3next qwen35 qwen35moe", "post_attention_norm",
     "post_attention_layernorm"},
    {"gemma2 gemma3 olmo2 exaone4", "post_ffw_norm", "post_feedforward_layernorm"},
    {"gemma2 gemma3", "ffn_norm", "pre_feedforward_layernorm"},
    {"glm4", "post_attention_norm", "post_self_attn_layernorm"},
    {"glm4", "post_ffw_norm", "post_mlp_layernorm"},
    {"glm4 phi3", "ffn_up", "mlp.gate_up_proj"},
    {"phi3", "attn_qkv", "self_attn.qkv_proj"},
    {"starcoder2", "ffn_up", "mlp.c_fc"},
    {"starcoder2", "ffn_down", "mlp.c_proj"},
    {"hunyuan-dense", "attn_q_norm", "self_attn.query_layernorm"},
    {"hunyuan-dense", "attn_k_norm", "self_attn.key_layernorm"},
    // Layers with states; older files have qkv and gate in one tensor.
    {kDeltaNets, "attn_qkv", "linear_attn.in_proj_qkv"},
    {kDeltaNets, "attn_gate", "linear_attn.in_proj_z"},
    {"qwen3next", "ssm_in", "linear_attn.in_proj_qkvz"},
    {"qwen3next", "ssm_ba", "linear_attn.in_proj_ba"},
    {kTiled, "ssm_alpha", "linear_attn.in_proj_a"},
    {kTiled, "ssm_beta", "linear_attn.in_proj_b"},
    {kDeltaNets, "ssm_conv1d", "linear_attn.conv1d"},
    {kDeltaNets, "ssm_a", "linear_attn.A_log"},
    {kDeltaNets, "ssm_dt", "linear_attn.dt"},
    {kDeltaNets, "ssm_norm", "linear_attn.norm"},
    {kDeltaNets, "ssm_out", "linear_attn.out_proj"},
    {"granitehybrid nemotron_h", "ssm_in", "mamba.in_proj"},
    {"granitehybrid nemotron_h", "ssm_conv1d", "mamba.conv1d"},
    {"granitehybrid nemotron_h", "ssm_a", "mamba.A_log"},
    {"granitehybrid nemotron_h", "ssm_d", "mamba.D"},
    {"granitehybrid nemotron_h", "ssm_dt", "mamba.dt"},
    {"granitehybrid nemotron_h", "ssm_norm", "mamba.norm"},
    {"granitehybrid nemotron_h", "ssm_out", "mamba.out_proj"},
};

bool is_one_of(std::string_view word, std::string_view words) {
  for (size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

// Hugging Face's name, and the same by the rules of the table: a stem and ".weight" or ".bias", one word for shared
// experts.
struct Spelling {
  std::string_view hf, ours;
  std::string_view architectures = {};  // whose name it is, separated by spaces; empty: of all
};
constexpr Spelling kSpellings[] = {{".e_score_correction_bias", ".e_score_correction.bias"},
                                   {".self_attn.sinks", ".self_attn.sinks.weight"},
                                   {".linear_attn.A_log", ".linear_attn.A_log.weight"},
                                   {".linear_attn.dt_bias", ".linear_attn.dt.bias"},
                                   {".mamba.A_log", ".mamba.A_log.weight"},
                                   {".mamba.dt_bias", ".mamba.dt.bias"},
                                   {".mamba.D", ".mamba.D.weight"},
                                   {".shared_experts.", ".shared_expert.", "deepseek2 glm4moe ernie4_5-moe"}};

void respell(std::string& text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

// The names of GGUF in a layer that end in neither: of decays, as -exp(), and of what skips the state.
constexpr std::string_view kDecay = "ssm_a", kSkip = "ssm_d", kWeight = ".weight";
bool is_bare(std::string_view gguf) {
  return gguf.ends_with(std::string(".") + std::string(kDecay)) ||
         gguf.ends_with(std::string(".") + std::string(kSkip));
}

// What a tensor has of the tiled heads: _LinearAttentionVReorderBase::modify_tensors of llama.cpp's conversion/qwen.py.
TiledHeads tiled_part(std::string_view gguf, const GgufModelShape& model) {
  TiledHeads part = model.tiled;
  if (gguf == "attn_qkv" || gguf == "ssm_conv1d") {
    part.first = 2 * part.key_heads * model.key;
  } else if (gguf == "ssm_alpha" || gguf == "ssm_beta" || gguf == kDecay || gguf == "ssm_dt") {
    part.size = 1;
  } else if (gguf == "ssm_out") {
    part.columns = true;
  } else if (gguf != "attn_gate") {
    return {};
  }
  return part;
}

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

bool tiles_heads(std::string_view architecture) { return is_one_of(architecture, kTiled); }

bool interleaves_heads(std::string_view architecture) {
  return is_one_of(architecture, "llama mistral granite granitemoe granitehybrid nemotron_h smollm3");
}

std::optional<GgufName> gguf_name(std::string_view hf_name, const GgufModelShape& model) {
  std::string ours(hf_name);
  for (const Spelling& s : kSpellings) respell(ours, s.hf, s.ours);
  const std::optional<Parts> parts = split(ours, "model.layers.");
  if (!parts) return std::nullopt;
  // Centred norms multiply with 1 + weight; files hold that sum.
  const bool centred = is_one_of(model.architecture, "gemma2 gemma3 qwen3next qwen35 qwen35moe") &&
                       hf_name.ends_with("norm.weight") && !hf_name.ends_with("linear_attn.norm.weight");
  const StoredNumber number = centred ? StoredNumber::OneMore : StoredNumber::Plain;
  if (parts->layer.empty()) {
    for (const Pair& p : kTop)
      if (p.hf == parts->stem) return GgufName{fmt::format("{}{}", p.gguf, parts->suffix), 0, number};
    return std::nullopt;
  }
  const auto named = [&](std::string_view gguf) {
    GgufName name{fmt::format("blk.{}.{}{}", parts->layer, gguf, parts->suffix), 0, number};
    if (interleaves_heads(model.architecture)) {
      if (gguf == "attn_q") name.interleaved_heads = model.heads;
      if (gguf == "attn_k") name.interleaved_heads = model.kv_heads;
    }
    if (gguf == kDecay || gguf == kSkip) name.name.resize(name.name.size() - kWeight.size());
    if (gguf == kDecay) name.number = StoredNumber::NegativeExp;
    if (model.tiled) name.tiled = tiled_part(gguf, model);
    return name;
  };
  for (const OwnPair& p : kOfSome)
    if (p.hf == parts->stem && is_one_of(model.architecture, p.architectures)) return named(p.gguf);
  for (const Pair& p : kLayer)
    if (p.hf == parts->stem) return named(p.gguf);
  return std::nullopt;
}

std::optional<std::string> hf_name(std::string_view gguf_name, const GgufModelShape& model) {
  const std::string whole = std::string(gguf_name) + std::string(is_bare(gguf_name) ? kWeight : "");
  const std::optional<Parts> parts = split(whole, "blk.");
  if (!parts) return std::nullopt;
  if (parts->layer.empty()) {
    for (const Pair& p : kTop)
      if (p.gguf == parts->stem) return fmt::format("{}{}", p.hf, parts->suffix);
    return std::nullopt;
  }
  const auto named = [&](std::string_view hf) {
    std::string name = fmt::format("model.layers.{}.{}{}", parts->layer, hf, parts->suffix);
    for (const Spelling& s : kSpellings)
      if (s.architectures.empty() || is_one_of(model.architecture, s.architectures)) respell(name, s.ours, s.hf);
    return name;
  };
  for (const OwnPair& p : kOfSome)
    if (p.gguf == parts->stem && is_one_of(model.architecture, p.architectures)) return named(p.hf);
  for (const Pair& p : kLayer)
    if (p.gguf == parts->stem) return named(p.hf);
  return std::nullopt;
}

}  // namespace reprise::checkpoint
