#include "backends/cpu/register.h"

#include "ops/core.h"

namespace reprise::cpu {

void register_cpu(KernelRegistry& kernels, Isa isa) {
  register_linear(kernels, isa);
  register_w8a8(kernels, isa);
  register_packed(kernels, isa);
  register_attention(kernels, isa);
  register_latent(kernels, isa);
  register_experts(kernels, isa);
  register_vector(kernels, isa);
  register_draws(kernels, isa);
  register_lora(kernels, isa);
  register_encoder(kernels, isa);
  register_recurrent(kernels, isa);
}

Status want_cache(const OpCall& c, size_t i) {
  const Shape& s = c.in[i].shape;
  if (!s[2].is_constant() || !s[4].is_constant())
    return error(Code::Unsupported, "the cache's heads and head size must be constants in {}", describe(c));
  const int64_t size = kv_head_size(c.in[i]).factor;
  if (size % 2 != 0 || size < 2 || size > 256)
    return error(Code::Unsupported, "takes even head sizes from 2 to 256, not {} of {}", size, describe(c));
  return Status::ok();
}

void Entries::add(std::string_view op, const PerType& kernels, const Extras& extras) {
  const auto one = [&](DType t, CpuKernel first, CpuKernel second) {
    Extras mine = extras;
    if (second) mine.any_second = second;
    if (t == DType::F32 && !extras.f32_scratch) mine.scratch = {};
    add(op, EntryTypes(t, extras.other.value_or(t)), first, mine);
  };
  one(DType::F32, kernels.f32, extras.second.f32);
  one(DType::BF16, kernels.bf16, extras.second.bf16);
  one(DType::F16, kernels.f16, extras.second.f16);
}

void Entries::add(std::string_view op, std::optional<EntryTypes> types, CpuKernel kernel, const Extras& extras) {
  const auto set_way = [way = extras.way](const OpCall& c, LaunchArgs& to) {
    to.way = way ? way(c) : bf16_dot_is_fast();
  };
  KernelEntry e = entry_of({.op = op,
                            .variant = extras.variant,
                            .types = types,
                            .accepts = extras.accepts,
                            .bind = set_way,
                            .scratch = extras.scratch});
  e.name += fmt::format(".{}", isa_name(isa_));
  e.part[0] = opaque(kernel);
  if (extras.any_second) e.part[1] = opaque(extras.any_second);
  e.param_layouts = extras.layouts;
  kernels_.add(std::move(e));
}

}  // namespace reprise::cpu
