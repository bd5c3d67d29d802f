// Entries of the ops on the KV cache: kv_write and paged_attention.
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/register.h"
#include "ops/core.h"

namespace reprise::cpu {
namespace {

static_assert(kKvTokens == kPageTokens);

Status unsupported_dtype(const OpCall& c, DType takes) {
  return error(Code::Unsupported, "takes {}, not {}", dtype_name(takes), describe(c));
}

Status accepts_cache(const OpCall& c, const TensorType& kv) {
  const Shape& s = kv.shape;
  if (!s[2].is_constant() || !s[4].is_constant())
    return error(Code::Unsupported, "the cache's heads and head size must be constants in {}", describe(c));
  if (s[4].factor % 2 != 0 || s[4].factor < 2 || s[4].factor > 256)
    return error(Code::Unsupported, "takes even head sizes from 2 to 256, not {} of {}", s[4].factor, describe(c));
  return Status::ok();
}

template <DType T>
Status accepts_kv_write(const OpCall& c) {
  for (int i : {0, 1, 2})
    if (c.in[i].dtype != T) return unsupported_dtype(c, T);
  return accepts_cache(c, c.in[0]);
}

void bind_kv_write(const OpCall& c, LaunchArgs& args) {
  for (int i = 0; i < 3; ++i) args.dim[i] = c.in[1].shape[i];
}

template <DType T>
Status accepts_attention(const OpCall& c) {
  for (int i : {0, 1})
    if (c.in[i].dtype != T) return unsupported_dtype(c, T);
  if (c.attrs->integer("window") < 0)
    return error(Code::Unsupported, "window {} is negative", c.attrs->integer("window"));
  return accepts_cache(c, c.in[1]);
}

void bind_attention(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[1];
  args.dim[1] = c.in[1].shape[2];
  args.dim[2] = c.in[0].shape[2];
  args.dim[3] = c.in[2].shape[0];
  args.dim[4] = c.in[2].shape[1];
  args.dim[5] = c.attrs->integer("window");
  args.dim[6] = Dim(bf16_dot_is_fast() ? 1 : 0);
  args.scalar[0] = c.attrs->number("scale");
}

size_t attention_workspace(const OpCall& c, const LiveSizes& bound, int ranks) {
  AttentionSizes z;
  z.heads = c.in[0].shape[1].factor;
  z.kv_heads = c.in[1].shape[2].factor;
  z.size = c.in[0].shape[2].factor;
  z.columns = c.in[2].shape[1].value(bound);
  return static_cast<size_t>(z.rank_floats(ranks)) * sizeof(float) * static_cast<size_t>(ranks);
}

}  // namespace

void register_attention(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  auto add = [&](std::string_view op, std::string_view dtype, Status (*accepts)(const OpCall&),
                 void (*bind)(const OpCall&, LaunchArgs&), CpuKernel first, CpuKernel second) {
    KernelEntry e;
    e.name = fmt::format("cpu.{}.{}.{}", op, dtype, isa_name(isa));
    e.op = op;
    e.score = 100;
    e.accepts = accepts;
    e.bind = bind;
    e.phase[0] = opaque(first);
    if (second) {
      e.phase[1] = opaque(second);
      e.workspace = attention_workspace;
    }
    kernels.add(std::move(e));
  };
  add("kv_write", "f32", accepts_kv_write<DType::F32>, bind_kv_write, k.kv_write_f32, nullptr);
  add("kv_write", "bf16", accepts_kv_write<DType::BF16>, bind_kv_write, k.kv_write_bf16, nullptr);
  add("kv_write", "f16", accepts_kv_write<DType::F16>, bind_kv_write, k.kv_write_f16, nullptr);
  add("paged_attention", "f32", accepts_attention<DType::F32>, bind_attention, k.attention_f32, k.attention_merge_f32);
  add("paged_attention", "bf16", accepts_attention<DType::BF16>, bind_attention, k.attention_bf16,
      k.attention_merge_bf16);
  add("paged_attention", "f16", accepts_attention<DType::F16>, bind_attention, k.attention_f16, k.attention_merge_f16);
}

}  // namespace reprise::cpu
