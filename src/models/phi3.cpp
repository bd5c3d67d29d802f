// Phi-3 and Phi-4: Llama whose projections are rows of one tensor; heads may turn in part, and longrope has a list of
// factors.
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"

namespace reprise::models::phi3 {
namespace {

ModelOutputs forward(const ModelConfig& config, nn::StepInputs& in, const nn::ParamScope& root) {
  return dense_decoder(config, {.fused = true}, in, root);
}

bool slides(const checkpoint::ModelConfigFields& f, int64_t layer) {
  return f.listed_as_sliding(layer).value_or(f.sliding_window.has_value());
}

constexpr checkpoint::GgufTensorName kTensors[] = {{"attn_qkv.", "self_attn.qkv_proj."},
                                                   {"ffn_up.", "mlp.gate_up_proj."}};

}  // namespace

const ModelSpec kPhi3{
    .family = {.architecture = "Phi3ForCausalLM",
               .model_type = "phi3",
               .sizes = {.vocab = 32064,
                         .hidden = 3072,
                         .intermediate = 8192,
                         .layers = 32,
                         .heads = 32,
                         .positions = 4096,
                         .eps = 1e-5},
               .slides = slides,
               .gguf = {.name = "phi3", .windows = true, .add = checkpoint::add_long_factors, .tensors = kTensors},
               .partial_rotation = true,
               .long_rotation_only = true},
    .forward = forward};

}  // namespace reprise::models::phi3
