#include "checkpoint/config_keys.h"

namespace reprise::checkpoint {
namespace {

constexpr std::string_view kConfigKeys[] = {
    "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "partial_rotary_factor", "tie_word_embeddings", "hidden_act", "attention_bias",
    "mlp_bias", "qkv_bias", "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "bos_token_id",
    "eos_token_id", "pad_token_id", "torch_dtype", "dtype", "quantization_config", "compression_config",
    "original_max_position_embeddings", "num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers",
    // pooled outputs
    "is_matryoshka", "matryoshka_dimensions", "classifier_from_token",
    // mixtures of experts
    "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
    "decoder_sparse_step", "mlp_only_layers", "n_routed_experts", "n_shared_experts", "n_group", "topk_group",
    "topk_method", "scoring_func", "routed_scaling_factor", "first_k_dense_replace", "moe_layer_freq",
    "shared_expert_intermediate_size",
    // latent attention
    "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rope_interleave"};

constexpr std::string_view kRopeKeys[] = {"rope_type",
                                          "type",
                                          "factor",
                                          "original_max_position_embeddings",
                                          "low_freq_factor",
                                          "high_freq_factor",
                                          "attention_factor",
                                          "beta_fast",
                                          "beta_slow",
                                          "mscale",
                                          "mscale_all_dim",
                                          "truncate",
                                          "rope_theta",
                                          "partial_rotary_factor",
                                          "short_factor",
                                          "long_factor",
                                          "alpha"};

}  // namespace

std::span<const std::string_view> known_config_keys() { return kConfigKeys; }
std::span<const std::string_view> known_rope_keys() { return kRopeKeys; }

}  // namespace reprise::checkpoint
