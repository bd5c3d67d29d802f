// Entries of the ops on the KV cache: kv_write and paged_attention.
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/register.h"
#include "ops/core.h"

namespace reprise::cpu {
namespace {

static_assert(kv_row_of(64, true) == kv_row(DType::I8, 64) && kv_row_of(64, false) == kv_row(DType::BF16, 64));

// Operands of T and a cache of Cache.
template <DType T, DType Cache>
Status want_dtypes(const OpCall& c, std::initializer_list<size_t> operands, size_t cache) {
  bool fits = c.in[cache].dtype == Cache;
  for (size_t i : operands) fits = fits && c.in[i].dtype == T;
  if (fits) return Status::ok();
  if (T == Cache) return error(Code::Unsupported, "takes {}, not {}", dtype_name(T), describe(c));
  return error(Code::Unsupported, "takes {} with a cache of {}, not {}", dtype_name(T), dtype_name(Cache), describe(c));
}

Status accepts_cache(const OpCall& c, const TensorType& kv) {
  const Shape& s = kv.shape;
  if (!s[2].is_constant() || !s[4].is_constant())
    return error(Code::Unsupported, "the cache's heads and head size must be constants in {}", describe(c));
  const int64_t size = kv_head_size(kv).factor;
  if (size % 2 != 0 || size < 2 || size > 256)
    return error(Code::Unsupported, "takes even head sizes from 2 to 256, not {} of {}", size, describe(c));
  return Status::ok();
}

template <DType T, DType Cache = T>
Status accepts_kv_write(const OpCall& c) {
  RETURN_IF_ERROR((want_dtypes<T, Cache>(c, {1, 2}, 0)));
  return accepts_cache(c, c.in[0]);
}

void bind_kv_write(const OpCall& c, LaunchArgs& args) {
  for (int i = 0; i < 3; ++i) args.dim[i] = c.in[1].shape[i];
}

template <DType T, DType Cache = T>
Status accepts_attention(const OpCall& c) {
  RETURN_IF_ERROR((want_dtypes<T, Cache>(c, {0}, 1)));
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
    KernelEntry e = entry_of(op, dtype, isa, accepts, bind, first, second);
    if (second) e.workspace = attention_workspace;
    kernels.add(std::move(e));
  };
  add("kv_write", "f32", accepts_kv_write<DType::F32>, bind_kv_write, k.kv_write_f32, nullptr);
  add("kv_write", "bf16", accepts_kv_write<DType::BF16>, bind_kv_write, k.kv_write_bf16, nullptr);
  add("kv_write", "f16", accepts_kv_write<DType::F16>, bind_kv_write, k.kv_write_f16, nullptr);
  add("paged_attention", "f32", accepts_attention<DType::F32>, bind_attention, k.attention_f32, k.attention_merge_f32);
  add("paged_attention", "bf16", accepts_attention<DType::BF16>, bind_attention, k.attention_bf16,
      k.attention_merge_bf16);
  add("paged_attention", "f16", accepts_attention<DType::F16>, bind_attention, k.attention_f16, k.attention_merge_f16);
  add("kv_write", "f32_i8", accepts_kv_write<DType::F32, DType::I8>, bind_kv_write, k.kv_write_f32_i8, nullptr);
  add("kv_write", "bf16_i8", accepts_kv_write<DType::BF16, DType::I8>, bind_kv_write, k.kv_write_bf16_i8, nullptr);
  add("kv_write", "f16_i8", accepts_kv_write<DType::F16, DType::I8>, bind_kv_write, k.kv_write_f16_i8, nullptr);
  add("paged_attention", "f32_i8", accepts_attention<DType::F32, DType::I8>, bind_attention, k.attention_f32_i8,
      k.attention_merge_f32);
  add("paged_attention", "bf16_i8", accepts_attention<DType::BF16, DType::I8>, bind_attention, k.attention_bf16_i8,
      k.attention_merge_bf16_i8);
  add("paged_attention", "f16_i8", accepts_attention<DType::F16, DType::I8>, bind_attention, k.attention_f16_i8,
      k.attention_merge_f16);
}

}  // namespace reprise::cpu
