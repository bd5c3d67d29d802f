// What families with layers that keep a state for each sequence declare of a step: those layers are "linear_attention"
// in layer_types, and only "full_attention" keeps keys and values. Plain functions; any thread.
#pragma once

#include <string_view>

#include "models/model.h"
#include "nn/mamba.h"

namespace reprise::models {

inline bool has_state(const checkpoint::ModelConfigFields& f, int64_t layer) {
  return f.layer_types[static_cast<size_t>(layer)] == "linear_attention";
}

// What a layer keeps: a convolution's last `taps` rows of `columns` numbers in the cache "conv", and a state of `heads`
// matrices [key, value] in the cache `name`.
struct StateSizes {
  std::string_view name;
  int64_t taps = 0, columns = 0;
  int64_t heads = 0, key = 0, value = 0;
};
void declare_states(const checkpoint::ModelConfigFields& f, const TraceOptions& trace, const StateSizes& sizes,
                    StepSpec& step);

// Mamba-2's names in GGUF files.
inline constexpr checkpoint::GgufTensorName kMambaTensors[] = {
    {"ssm_in.", "mamba.in_proj."},
    {"ssm_conv1d.", "mamba.conv1d."},
    {"ssm_a", "mamba.A_log", checkpoint::StoredNumber::NegativeExp},
    {"ssm_d", "mamba.D"},
    {"ssm_dt.bias", "mamba.dt_bias"},
    {"ssm_norm.", "mamba.norm."},
    {"ssm_out.", "mamba.out_proj."}};

// Mamba-2's, from what checkpoint::read_mamba() has read.
nn::MambaSpec mamba_spec(const checkpoint::ModelConfigFields& f);
void declare_mamba(const ModelConfig& config, const TraceOptions& trace, StepSpec& step);

}  // namespace reprise::models
