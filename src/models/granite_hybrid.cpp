// Granite 4: most layers are Mamba-2's, or none are; an MLP in every layer, with experts beside it or without. Scales
// are Granite 3's, and positions turn where the file says so.
#include "checkpoint/config_groups.h"
#include "checkpoint/limits.h"
#include "models/experts.h"
#include "models/granite.h"
#include "models/state_layers.h"

namespace reprise::models::granite_hybrid {
namespace {

using checkpoint::FieldReader;
using checkpoint::ModelConfigFields;

// GGUF files have the two halves of input_linear as tensors of their own.
Tensor shared_mlp(Tensor x, const ModelConfigFields& f, const nn::ParamScope& p) {
  const int64_t size = f.experts.shared_intermediate;
  if (f.number("gguf_parts_apart") != 0)
    return nn::gated_mlp(x, size, false, f.experts.count > 0 ? p / "mlp" / "shared_expert" : p / "mlp");
  const nn::ParamScope in = p / "shared_mlp" / "input_linear";
  const Tensor gate = nn::linear_rows(x, in, 0, size, 2 * size, nn::Shard::Column),
               up = nn::linear_rows(x, in, size, size, 2 * size, nn::Shard::Column);
  return nn::linear(nn::mul(nn::silu(gate), up), p / "shared_mlp" / "output_linear", f.hidden_size, false,
                    nn::Shard::Row);
}

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const auto& f = config.fields;
  DecoderTraits traits = granite::traits_of(f);
  if (f.number("rotates") == 0) traits.rotation = nn::Rotation::None;
  const nn::MambaSpec mamba = mamba_spec(f);
  const LayerAttention attention = grouped_attention(config, traits, in);
  const auto mixer = [&](Tensor x, Tensor rope, int64_t layer, const nn::ParamScope& p) {
    return has_state(f, layer) ? nn::mamba_layer(x, mamba, in, layer, p / "mamba") : attention(x, rope, layer, p);
  };
  const nn::ExpertSpec experts = expert_spec(f.experts);
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) {
    const Tensor shared = shared_mlp(x, f, p);
    return f.experts.count > 0 ? nn::add(nn::moe(x, experts, in, p / "mlp"), shared) : shared;
  };
  return decoder(config, mixer, mlp, in, root, traits.shape);
}

constexpr std::string_view kFields[] = {"attention_bias",
                                        "embedding_multiplier",
                                        "residual_multiplier",
                                        "logits_scaling",
                                        "num_experts",
                                        "attention_multiplier",
                                        "num_local_experts",
                                        "shared_intermediate_size",
                                        "mamba_n_heads",
                                        "mamba_d_head",
                                        "position_embedding_type",
                                        "mamba_n_groups",
                                        "mamba_d_state",
                                        "mamba_d_conv",
                                        "mamba_expand",
                                        "mamba_conv_bias",
                                        "time_step_limit",
                                        "mamba_proj_bias",
                                        "mamba_chunk_size",
                                        "gguf_parts_apart"};

// The size of a head may be "auto": that which the heads together leave each.
Status read_layers(const FieldReader& in, ModelConfigFields& out) {
  if (!in.find("layer_types")) out.layer_types.assign(static_cast<size_t>(out.num_hidden_layers), "linear_attention");
  int64_t expand = 0, heads = 0;
  RETURN_IF_ERROR(in.integer("mamba_expand", 1, 64, 2, expand));
  RETURN_IF_ERROR(in.integer("mamba_n_heads", 1, checkpoint::kMaxHeads, 128, heads));
  const int64_t inner = expand * out.hidden_size;
  const Json* head = in.find("mamba_d_head");
  RETURN_IF_ERROR(checkpoint::read_mamba(in,
                                         {.heads = "mamba_n_heads",
                                          .head = head && *head == "auto" ? "" : "mamba_d_head",
                                          .groups = "mamba_n_groups",
                                          .state = "mamba_d_state",
                                          .taps = "mamba_d_conv",
                                          .conv_bias = "mamba_conv_bias",
                                          .proj_bias = "mamba_proj_bias",
                                          .usual_heads = heads,
                                          .usual_head = std::max<int64_t>(1, inner / heads),
                                          .usual_state = 256},
                                         out));
  const auto each = static_cast<int64_t>(out.number("mamba.head"));
  if (each * heads == inner) return Status::ok();
  return invalid(
      "{}: mamba_n_heads {} of mamba_d_head {} are {} numbers; allowed: mamba_expand {} times hidden_size {}",
      out.source, heads, each, each * heads, expand, out.hidden_size);
}

Status read(const FieldReader& in, ModelConfigFields& out) {
  RETURN_IF_ERROR(granite::read_scales(in, out));
  std::string positions;
  RETURN_IF_ERROR(in.choice("position_embedding_type", {"nope", "rope"}, "nope", positions));
  bool apart = false;
  RETURN_IF_ERROR(in.boolean("gguf_parts_apart", false, apart));
  out.numbers["rotates"] = positions == "rope" ? 1 : 0;
  out.numbers["gguf_parts_apart"] = apart ? 1 : 0;
  checkpoint::ExpertFields& e = out.experts;
  std::optional<int64_t> count = 8;
  RETURN_IF_ERROR(in.integer_or_alias("num_local_experts", "num_experts", 0, checkpoint::kMaxExperts, count));
  e.count = *count;
  if (e.count > 0) RETURN_IF_ERROR(in.integer("num_experts_per_tok", 1, e.count, 2, e.per_token));
  e.intermediate = out.intermediate_size;
  e.normalise = true;
  RETURN_IF_ERROR(in.integer("shared_intermediate_size", 1, checkpoint::kMaxIntermediate, 1024, e.shared_intermediate));
  return read_layers(in, out);
}

// llama.cpp turns no positions in files of this name.
Status add(checkpoint::GgufFields& in) {
  RETURN_IF_ERROR(granite::add_scales(in));
  RETURN_IF_ERROR(
      checkpoint::add_mamba(in, {"mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_conv", "mamba_expand"}));
  Json& out = in.out();
  const auto hidden = out["hidden_size"].get<int64_t>(), inner = out["mamba_expand"].get<int64_t>();
  if (hidden < 1 || inner % hidden != 0)
    return invalid("{}: metadata \"{}\" {} is no multiple of \"{}\" {}", in.file().source(), in.key("ssm.inner_size"),
                   inner, in.key("embedding_length"), hidden);
  out["mamba_expand"] = inner / hidden;
  RETURN_IF_ERROR(in.copy("expert_shared_feed_forward_length", "shared_intermediate_size"));
  if (!out.contains("num_local_experts")) out["num_local_experts"] = 0;
  out["gguf_parts_apart"] = true;
  Json types = Json::array();
  for (int64_t l = 0; l < std::min(checkpoint::kMaxLayers, out["num_hidden_layers"].get<int64_t>()); ++l)
    types.push_back(in.has(fmt::format("blk.{}.ssm_in.weight", l)) ? "mamba" : "attention");
  out["layer_types"] = std::move(types);
  return Status::ok();
}

}  // namespace

const ModelSpec kGraniteHybrid{
    .family =
        {.architecture = "GraniteMoeHybridForCausalLM",
         .model_type = "granitemoehybrid",
         .sizes = {.vocab = 32000, .hidden = 4096, .intermediate = 11008, .layers = 32, .heads = 32, .positions = 2048},
         .fields = kFields,
         .read = read,
         .gguf = {.name = "granitehybrid",
                  .experts = "num_local_experts",
                  .add = add,
                  .tensors = kMambaTensors,
                  .interleaved_heads = true},
         .names = granite::kMoeNames},
    .forward = forward,
    .declare = declare_mamba};

}  // namespace reprise::models::granite_hybrid
