// Groups of fields that several families have, for Family::read: who sees whom, mixtures of experts, latent attention,
// layers with states of either kind. Each takes what Hugging Face's configuration class fills in. Plain functions; any
// thread.
#pragma once

#include "checkpoint/config.h"
#include "checkpoint/field_reader.h"

namespace reprise::checkpoint {

struct ExpertDefaults {
  std::string_view count_key, other_count_key;  // files may use either
  int64_t count = 0, per_token = 0;
  int64_t intermediate = 0;  // 0: intermediate_size, and no key of its own; weights are normalised
  int64_t shared = 0;        // 0: no shared expert
  bool normalise = false;    // where files do not say norm_topk_prob
};
// is_causal, of families whose rows see those behind them where it is false, as transformers 5 reads it.
Status read_causal(const FieldReader& in, ModelConfigFields& out);

// Experts in every layer, or in those that decoder_sparse_step and mlp_only_layers leave.
Status read_experts(const FieldReader& in, const ExpertDefaults& d, ModelConfigFields& out);

// Layers that keep a state for each sequence: linear_num_value_heads and the like in `numbers`, and which layers they
// are in layer_types, by "full_attention_interval" where the file has no list.
Status read_state_layers(const FieldReader& in, ModelConfigFields& out);

// Names of Mamba-2's fields, and what is usual; 0: the file must say it.
struct MambaFields {
  std::string_view heads, head, groups, state, taps, conv_bias, proj_bias;
  int64_t usual_heads = 0, usual_head = 0, usual_groups = 1, usual_state = 0;
};
// Mamba-2's sizes in `numbers`, as "mamba.heads", "mamba.head", "mamba.groups", "mamba.state", "mamba.taps",
// "mamba.conv_bias", "mamba.proj_bias", "mamba.least_step" and "mamba.most_step" (0: no limit).
Status read_mamba(const FieldReader& in, const MambaFields& fields, ModelConfigFields& out);

// Which layers turn nothing: no_rope_layers, a list with 1 for each that turns (the name says the opposite), or every
// no_rope_layer_interval-th where there is no list.
Status read_unrotated_layers(const FieldReader& in, ModelConfigFields& out);

struct LatentDefaults {
  int64_t q_lora_rank = 0, kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
};
Status read_latent(const FieldReader& in, const LatentDefaults& d, ModelConfigFields& out);

}  // namespace reprise::checkpoint
