// Mixtral: Mistral with experts in every layer; their weights are normalised over those chosen.
#include "checkpoint/config_groups.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"
#include "models/experts.h"

namespace reprise::models::mixtral {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  const nn::ExpertSpec spec = expert_spec(config.fields.experts);
  const auto mlp = [&](Tensor x, int64_t, const nn::ParamScope& p) { return nn::moe(x, spec, in, p / "mlp"); };
  return decoder(config, grouped_attention(config, {}, in), mlp, in, root);
}

constexpr std::string_view kFields[] = {"num_experts", "num_local_experts"};

Status read(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out) {
  return checkpoint::read_experts(
      in, {.count_key = "num_local_experts", .other_count_key = "num_experts", .count = 8, .per_token = 2}, out);
}

// Files say w1, w3 and w2 for gate, up and down.
constexpr checkpoint::NameRule kNames[] = {
    {.from = ".w1.", .to = ".gate_proj.", .within = ".block_sparse_moe.experts."},
    {.from = ".w2.", .to = ".down_proj.", .within = ".block_sparse_moe.experts."},
    {.from = ".w3.", .to = ".up_proj.", .within = ".block_sparse_moe.experts."},
    {.from = ".block_sparse_moe.", .to = ".mlp."}};

bool slides(const checkpoint::ModelConfigFields& f, int64_t) { return f.sliding_window.has_value(); }

// llama.cpp's "llama" with experts.
Result<bool> holds(const checkpoint::GgufFields& in) {
  ASSIGN_OR_RETURN(const auto count, in.get("expert_count"));
  return count.value_or(0) > 0;
}

}  // namespace

const ModelSpec kMixtral{
    .family = {.architecture = "MixtralForCausalLM",
               .model_type = "mixtral",
               .sizes = {.vocab = 32000,
                         .hidden = 4096,
                         .intermediate = 14336,
                         .layers = 32,
                         .heads = 32,
                         .kv_heads = 8,
                         .positions = 131072,
                         .eps = 1e-5,
                         .theta = 1e6},
               .fields = kFields,
               .read = read,
               .slides = slides,
               .gguf = {.name = "llama", .experts = "num_local_experts", .holds = holds, .interleaved_heads = true},
               .names = kNames},
    .forward = forward};

}  // namespace reprise::models::mixtral
