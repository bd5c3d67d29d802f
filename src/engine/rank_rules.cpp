#include "engine/rank_rules.h"

#include <algorithm>
#include <vector>

#include "passes/shard_over_ranks.h"

namespace reprise::engine {
namespace {

// Sizes by which experts can be shared out.
Status check_experts(const EngineOptions& o, const models::ModelConfig& config) {
  const int64_t ep = o.ep_size, experts = config.fields.experts.count;
  if (ep == 1) return Status::ok();
  const int size = o.member ? o.member->world().size : 1;
  std::vector<int64_t> allowed{1};
  for (int64_t n = 2; n <= std::min<int64_t>(size, experts); ++n)
    if (size % n == 0) allowed.push_back(n);
  if (std::find(allowed.begin(), allowed.end(), ep) != allowed.end()) return Status::ok();
  const std::string& name = config.fields.architecture;
  const std::string why = experts == 0 ? fmt::format("{} has no experts", name)
                                       : fmt::format("{} has {} experts, and the world {} rank{}", name, experts, size,
                                                     size == 1 ? "" : "s");
  return invalid("`ep_size` {}: {}; allowed: {}", ep, why, fmt::join(allowed, ", "));
}

// Sizes by which sequences can be shared out: heads are cut over the ranks of a part.
Status check_sequences(const EngineOptions& o, const models::ModelSpec& spec, const models::ModelConfig& config,
                       const DeviceInfo& device) {
  const int64_t parts = o.sequence_parts;
  const auto& f = config.fields;
  const int size = o.member ? o.member->world().size : 1;
  if (parts == 1) return Status::ok();
  if (const DeviceKind kind = device.kind; kind == DeviceKind::Null)
    return invalid(
        "`enable_dp_attention`: sequences are shared out over ranks on cpu, cuda and ascend; on {} leave it out",
        device_kind_name(kind));
  if (o.graph.pipeline.expand_latents)
    return invalid(
        "`mla_prefill` expanded with `enable_dp_attention`: prompts attend to latents; leave one of them out");
  if (models::step_of(spec, config, {}).has_states())
    return error(Code::Unsupported,
                 "`enable_dp_attention`: {} keeps a state for each sequence, and states are not shared out over parts "
                 "of the ranks; leave it out",
                 f.architecture);
  const int64_t heads = f.num_attention_heads, groups = f.latent ? heads : f.num_key_value_heads;
  std::vector<int64_t> allowed;
  for (const int64_t n : allowed_ranks(heads, groups, size))
    if (size % n == 0 && n < size) allowed.insert(allowed.begin(), size / n);
  if (std::find(allowed.begin(), allowed.end(), parts) != allowed.end()) return Status::ok();
  return invalid(
      "`dp_size` {} with `enable_dp_attention`: the {} ranks of `tp_size` form parts of equal size, over "
      "which the {} query heads{} of {} are cut; allowed: {}",
      parts, size, heads, groups == heads ? "" : fmt::format(" in {} groups", groups), f.architecture,
      fmt::join(allowed, ", "));
}

}  // namespace

Status check_ranks(const EngineOptions& o, const models::ModelSpec& spec, const models::ModelConfig& config,
                   const DeviceInfo& device) {
  const int size = o.member ? o.member->world().size : 1;
  for (const Fault& fault : o.graph.faults)
    if (fault.rank && *fault.rank >= size)
      return invalid("`inject_fault` {} on rank {}: allowed: 0 to {}", fault_name(fault.kind), *fault.rank, size - 1);
  if (!o.member) return check_experts(o, config);
  const auto& f = config.fields;
  const int64_t heads = f.num_attention_heads, groups = f.latent ? heads : f.num_key_value_heads;
  RETURN_IF_ERROR(check_sequences(o, spec, config, device));
  const std::vector<int64_t> allowed = allowed_ranks(heads, groups, ranks::kMaxRanks);
  if (o.sequence_parts == 1 && std::find(allowed.begin(), allowed.end(), size) == allowed.end())
    return invalid("`tp_size` {}: {} has {} query heads{}; allowed: {}", size, f.architecture, heads,
                   groups == heads ? "" : fmt::format(" in {} groups", groups), fmt::join(allowed, ", "));
  RETURN_IF_ERROR(check_experts(o, config));
  const DeviceKind kind = device.kind;
  if (!o.member->world().one_host() && kind != DeviceKind::Cpu && kind != DeviceKind::Ascend)
    return error(Code::Unsupported, "ranks of several hosts exchange data on cpu and ascend; on {} allowed: one host",
                 device_kind_name(kind));
  return Status::ok();
}

}  // namespace reprise::engine
