// Heads of EAGLE (arXiv 2401.15077) and EAGLE-3 (arXiv 2503.01840) for models of any family: a layer or a few of Llama
// over hidden states of the model and the embedding of the next token. Both read the model's embedding; EAGLE also its
// head, EAGLE-3 has one of its own over the tokens that are frequent.
#include "checkpoint/field_reader.h"
#include "checkpoint/limits.h"
#include "models/draft_head.h"
#include "models/rope.h"

namespace reprise::models::eagle {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

constexpr int64_t kStates = 3;  // that a row of EAGLE-3 is made of

Tensor embedding_table(const ModelConfigFields& f, const nn::ParamScope& root) {
  return (root / "model" / "embed_tokens").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
}

nn::AttentionSpec attention_spec(const ModelConfigFields& f) {
  return {.heads = f.num_attention_heads,
          .kv_heads = f.num_key_value_heads,
          .head_dim = f.head_dim,
          .qkv_bias = f.attention_bias,
          .output_bias = f.attention_bias,
          .out = f.hidden_size};
}

ModelOutputs forward_eagle(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const Tensor table = embedding_table(f, root), rope = nn::rope_table(in.positions, rope_spec(config));
  Tensor x = nn::linear(nn::concat(nn::embedding(table, in.tokens), source_rows(in)), root / "fc", f.hidden_size,
                        f.number("fc_bias") != 0, nn::Shard::None);
  for (int64_t l = 0; l < f.num_hidden_layers; ++l) {
    const nn::ParamScope p = root / "model" / "layers" / l;  // names that files write without "model." have it
    const Tensor h = l == 0 ? x : nn::rms_norm(x, p / "input_layernorm", f.rms_norm_eps);
    x = nn::add(x, nn::attention(h, attention_spec(f), rope, in, l, p / "self_attn"));
    const Tensor y = nn::rms_norm(x, p / "post_attention_layernorm", f.rms_norm_eps);
    x = nn::add(x, nn::gated_mlp(y, f.intermediate_size, f.mlp_bias, p / "mlp"));
  }
  leave_rows(in, x);
  x = nn::index_select(x, in.last_rows);
  const Tensor head =
      f.tie_word_embeddings ? table : (root / "lm_head").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  return {.hidden = x, .logits = nn::linear_f32(x, head, nn::Shard::Column)};
}

ModelOutputs forward_eagle3(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  const Tensor table = embedding_table(f, root), rope = nn::rope_table(in.positions, rope_spec(config));
  const nn::ParamScope p = root / "midlayer";
  const auto norm = [&](Tensor x, const nn::ParamScope& at) { return nn::rms_norm(x, at, f.rms_norm_eps); };
  // Rows of the head's own are of one state already.
  const Tensor rows = source_rows(in);
  Tensor x = rows_apart(in, nn::linear(rows, root / "fc", f.hidden_size, false, nn::Shard::None),
                        nn::slice(rows, 0, f.hidden_size));
  const Tensor both =
      nn::concat(norm(nn::embedding(table, in.tokens), p / "input_layernorm"), norm(x, p / "hidden_norm"));
  x = nn::add(x, nn::attention(both, attention_spec(f), rope, in, 0, p / "self_attn"));
  const Tensor y = norm(x, p / "post_attention_layernorm");
  x = nn::add(x, nn::gated_mlp(y, f.intermediate_size, f.mlp_bias, p / "mlp"));
  leave_rows(in, x);
  x = norm(nn::index_select(x, in.last_rows), root / "model" / "norm");
  const Tensor head =
      f.tie_word_embeddings
          ? table
          : (root / "lm_head")
                .param("weight", {Dim(static_cast<int64_t>(f.number("draft_vocab_size"))), Dim(f.hidden_size)});
  return {.hidden = x, .logits = nn::linear_f32(x, head, nn::Shard::Column)};
}

void declare_eagle(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  declare_head(trace, config.fields.num_hidden_layers, step);
}

void declare_eagle3(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  declare_head(trace, config.fields.num_hidden_layers, step, true);
}

int64_t width_of_three(const ModelConfigFields& f) { return kStates * f.hidden_size; }

Status read_eagle(const FieldReader&, ModelConfigFields& out) {
  out.numbers["fc_bias"] = 0;  // whether the checkpoint has it
  return Status::ok();
}

Status read_eagle3(const FieldReader& in, ModelConfigFields& out) {
  if (out.num_hidden_layers != 1)
    return error(Code::Unsupported, "{}: num_hidden_layers is {}; allowed for {}: 1", out.source, out.num_hidden_layers,
                 out.architecture);
  int64_t vocab = 0, hidden = 0;
  RETURN_IF_ERROR(in.integer("draft_vocab_size", 1, out.vocab_size, out.vocab_size, vocab));
  RETURN_IF_ERROR(in.integer("target_hidden_size", 1, checkpoint::kMaxHidden, out.hidden_size, hidden));
  if (hidden != out.hidden_size)
    return error(Code::Unsupported, "{}: target_hidden_size is {}; allowed: hidden_size {}", out.source, hidden,
                 out.hidden_size);
  bool normed = false;
  RETURN_IF_ERROR(in.boolean("norm_before_residual", false, normed));
  if (normed) return error(Code::Unsupported, "{}: norm_before_residual is true; allowed: false", out.source);
  out.numbers["draft_vocab_size"] = static_cast<double>(vocab);
  out.numbers["fc_bias"] = 0;
  return Status::ok();
}

constexpr std::string_view kFields[] = {"attention_bias", "mlp_bias", "bias"};
constexpr std::string_view kFields3[] = {"attention_bias",     "mlp_bias",     "draft_vocab_size",
                                         "target_hidden_size", "eagle_config", "norm_before_residual"};

}  // namespace

// Some files name what the layers are of.
const ModelSpec kEagle{.family = {.architecture = "LlamaForCausalLMEagle",
                                  .other_architecture = "LlamaForCausalLM",
                                  .model_type = "llama",
                                  .fields = kFields,
                                  .read = read_eagle},
                       .forward = forward_eagle,
                       .declare = declare_eagle,
                       .source_width = width_of_hidden};

const ModelSpec kEagle3{.family = {.architecture = "LlamaForCausalLMEagle3",
                                   .other_architecture = "LlamaForCausalLM",
                                   .model_type = "llama",
                                   .fields = kFields3,
                                   .read = read_eagle3},
                        .forward = forward_eagle3,
                        .declare = declare_eagle3,
                        .source_width = width_of_three,
                        .own_head = true};

}  // namespace reprise::models::eagle
