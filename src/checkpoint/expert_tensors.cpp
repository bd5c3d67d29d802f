#include "checkpoint/expert_tensors.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "checkpoint/limits.h"

namespace reprise::checkpoint {
namespace {

bool replace(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

// Text models inside larger ones have a prefix of their own, in one of two places.
void rename_text_model(std::string& name) {
  for (const auto& [prefix, instead] :
       {std::pair<std::string_view, std::string_view>{"language_model.model.", "model."},
        {"language_model.lm_head.", "lm_head."},
        {"model.language_model.", "model."},
        // Encoders inside models with a head, and decoders that were stored without one.
        {"bert.", ""},
        {"roberta.", ""},
        {"layers.", "model.layers."},
        {"embed_tokens.", "model.embed_tokens."},
        {"norm.", "model.norm."}})
    if (name.starts_with(prefix)) return void(name.replace(0, prefix.size(), instead));
}

// Norms of old files.
void rename_norms(std::string& name) {
  for (const auto& [from, to] :
       {std::pair{".LayerNorm.gamma", ".LayerNorm.weight"}, {".LayerNorm.beta", ".LayerNorm.bias"}})
    if (name.ends_with(from) && replace(name, from, to)) return;
}

// Names of the same parts in other families, beside those of Mixtral.
void rename_experts(std::string& name) {
  if (name.find(".mlp.") == std::string::npos) return;
  for (const auto& [from, to] : {std::pair{".mlp.router.layer.weight", ".mlp.gate.weight"},
                                 {".mlp.input_linear.weight", ".mlp.experts.gate_up_proj"},
                                 {".mlp.output_linear.weight", ".mlp.experts.down_proj"},
                                 {".mlp.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"},
                                 {".mlp.moe_statics.e_score_correction_bias", ".mlp.gate.e_score_correction_bias"}})
    if (name.ends_with(from) && replace(name, from, to)) return;
}

void rename_mixtral(std::string& name) {
  if (!replace(name, ".block_sparse_moe.", ".mlp.")) return;
  if (name.find(".mlp.experts.") == std::string::npos) return;
  for (const auto& [from, to] : {std::pair{".w1.", ".gate_proj."}, {".w2.", ".down_proj."}, {".w3.", ".up_proj."}})
    if (replace(name, from, to)) return;
}

// "a.experts.up_proj" or "a.experts.up_proj.weight" -> "a.experts" and "up_proj".
std::optional<std::pair<std::string_view, std::string_view>> stack_name(std::string_view name) {
  constexpr std::string_view kWeight = ".weight", kExperts = ".experts";
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !name.substr(0, dot).ends_with(kExperts)) return std::nullopt;
  const std::string_view leaf = name.substr(dot + 1);
  for (std::string_view known : {"gate_up_proj", "gate_proj", "up_proj", "down_proj"})
    if (leaf == known) return std::pair{name.substr(0, dot), leaf};
  return std::nullopt;
}

// Rows [first, first + rows) of a stack's matrix `e`.
CheckpointTensor slice_of(const CheckpointTensor& stack, std::string_view scope, int64_t e, std::string_view leaf,
                          int64_t first, int64_t rows) {
  CheckpointTensor t = stack;
  t.name = fmt::format("{}.{}.{}.weight", scope, e, leaf);
  t.file_name = fmt::format("{}[{}, {}:{}]", stack.file_name, e, first, first + rows);
  t.shape = {rows, stack.shape[2]};
  const uint64_t row_bytes = stack.bytes / static_cast<uint64_t>(stack.rows());
  t.bytes = row_bytes * static_cast<uint64_t>(rows);
  t.offset = stack.offset + row_bytes * static_cast<uint64_t>(e * stack.shape[1] + first);
  return t;
}

}  // namespace

std::vector<CheckpointTensor> with_single_experts(std::vector<CheckpointTensor> tensors) {
  std::vector<CheckpointTensor> out;
  out.reserve(tensors.size());
  for (CheckpointTensor& t : tensors) {
    rename_text_model(t.name);
    rename_norms(t.name);
    rename_mixtral(t.name);
    rename_experts(t.name);
    const auto name = stack_name(t.name);
    const bool whole = name && t.shape.size() == 3 && t.shape[0] > 0 && t.shape[0] <= kMaxExperts && t.rows() > 0 &&
                       t.bytes % static_cast<uint64_t>(t.rows()) == 0;
    const bool both = whole && name->second == "gate_up_proj";
    if (!whole || (both && t.shape[1] % 2 != 0)) {
      out.push_back(std::move(t));
      continue;
    }
    const std::string_view scope = name->first;
    for (int64_t e = 0; e < t.shape[0]; ++e) {
      const int64_t rows = both ? t.shape[1] / 2 : t.shape[1];
      out.push_back(slice_of(t, scope, e, both ? "gate_proj" : name->second, 0, rows));
      if (both) out.push_back(slice_of(t, scope, e, "up_proj", rows, rows));
    }
  }
  return out;
}

}  // namespace reprise::checkpoint
