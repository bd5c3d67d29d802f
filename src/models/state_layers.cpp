#include "models/state_layers.h"

#include <algorithm>

#include "ops/recurrent.h"

namespace reprise::models {

using checkpoint::ModelConfigFields;

void declare_states(const ModelConfigFields& f, const TraceOptions& trace, const StateSizes& s, StepSpec& step) {
  if (std::find(f.layer_types.begin(), f.layer_types.end(), "linear_attention") == f.layer_types.end()) return;
  for (InputSpec& i : state_inputs(trace)) step.inputs.push_back(std::move(i));
  const auto add = [&](std::string_view name, int64_t layer, Shape shape) {
    step.caches.push_back({.name = nn::cache_name(name, layer),
                           .kind = CacheSpec::Kind::PerSequence,
                           .dtype = DType::F32,
                           .shape = shape,
                           .idempotent = false});
  };
  const int64_t drafts = trace.most_drafts, rows = drafts > 0 ? delta_state_rows(s.key, s.value, drafts) : s.key;
  for (int64_t l = 0; l < f.num_hidden_layers; ++l) {
    if (f.layer_types[static_cast<size_t>(l)] == "full_attention") continue;
    std::erase_if(step.caches, [&](const CacheSpec& c) { return c.name == nn::cache_name("kv", l); });
    if (!has_state(f, l)) continue;
    add("conv", l, {Dim(s.taps - 1 + drafts), Dim(s.columns)});
    add(s.name, l, {Dim(s.heads), Dim(rows), Dim(s.value)});
  }
}

nn::MambaSpec mamba_spec(const ModelConfigFields& f) {
  const auto number = [&](std::string_view name) { return static_cast<int64_t>(f.number(name)); };
  return {.heads = number("mamba.heads"),
          .head = number("mamba.head"),
          .state = number("mamba.state"),
          .groups = number("mamba.groups"),
          .taps = number("mamba.taps"),
          .conv_bias = number("mamba.conv_bias") != 0,
          .proj_bias = number("mamba.proj_bias") != 0,
          .norm_eps = f.rms_norm_eps,
          .least_step = f.number("mamba.least_step"),
          .most_step = f.number("mamba.most_step")};
}

void declare_mamba(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  const nn::MambaSpec s = mamba_spec(config.fields);
  declare_states(config.fields, trace, {"space", s.taps, s.columns(), s.heads, s.state, s.head}, step);
}

}  // namespace reprise::models
