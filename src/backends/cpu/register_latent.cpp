// Entries of multi-head latent attention: projections per head, caches of rows, attention over latents.
#include "backends/cpu/kernels/attention_plan.h"
#include "backends/cpu/kernels/expanded_shape.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"
#include "ops/core.h"

namespace reprise::cpu {
namespace {

// Fewer new tokens than these of a sequence are never worth turning a head's matrix and expanding a page.
constexpr int64_t kFewestExpanded = 32;

template <DType T>
Status accepts(const OpCall& c) {
  if (c.in[0].dtype == T) return Status::ok();
  return error(Code::Unsupported, "takes {}; the call is {}", dtype_name(T), describe(c));
}

// The weight is the last operand, with rows before it or without.
void bind_head_linear(const OpCall& c, LaunchArgs& args) {
  const Shape& weight = c.in.back().shape;
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = weight[2];
  args.dim[2] = weight[1];
  args.dim[3] = weight[0];
  args.dim[4] = Dim(bf16_dot_is_fast() ? 1 : 0);
  args.dim[5] = Dim(static_cast<int64_t>(c.in.size()) - 2);
}

size_t head_linear_workspace(const OpCall& c, const LiveSizes& bound, int ranks) {
  return static_cast<size_t>(ranks) * linear_rank_bytes(c.in[0].shape[0].value(bound), c.in.back().shape[2].factor);
}

void bind_forms(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[1].shape[0];
  args.dim[2] = Dim(c.attrs->integer("latent"));
  args.dim[3] = Dim(c.attrs->integer("nope"));
  args.dim[4] = Dim(c.attrs->integer("value"));
  args.dim[5] = Dim(kFewestExpanded);
}

template <DType T>
Status accepts_expanded(const OpCall& c) {
  if (c.in[1].dtype != T) return error(Code::Unsupported, "takes {}; the call is {}", dtype_name(T), describe(c));
  const int64_t key = c.in[1].shape[2].factor + c.in[2].shape[2].factor, value = c.in[0].shape[2].factor;
  if (T == DType::BF16 && (key % 2 != 0 || value % 2 != 0))
    return error(Code::Unsupported, "takes even sizes of keys and values, not {} and {}", key, value);
  return Status::ok();
}

void bind_expanded(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[1].shape[1];
  args.dim[1] = c.in[3].shape[2];
  args.dim[2] = c.in[2].shape[2];
  args.dim[3] = c.in[1].shape[2];
  args.dim[4] = c.in[0].shape[2];
  args.dim[5] = c.in[7].shape[0];
  args.dim[6] = c.in[7].shape[1];
  args.dim[7] = Dim(bf16_dot_is_fast() ? 1 : 0);
  args.dim[8] = c.in[1].shape[0];
  args.scalar[0] = c.attrs->number("scale");
}

size_t expanded_workspace(const OpCall& c, const LiveSizes& bound, int ranks) {
  const ExpandedSizes z{.latent = c.in[3].shape[2].factor,
                        .rope = c.in[2].shape[2].factor,
                        .nope = c.in[1].shape[2].factor,
                        .value = c.in[0].shape[2].factor,
                        .tokens = c.in[1].shape[0].value(bound)};
  return static_cast<size_t>(z.rank_floats()) * sizeof(float) * static_cast<size_t>(ranks);
}

Status accepts_all(const OpCall&) { return Status::ok(); }

void bind_row_write(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[1].shape[0];
  args.dim[1] = c.in[1].shape[1].factor * static_cast<int64_t>(size_of(c.in[1].dtype));
}

void bind_attention(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[1];
  args.dim[1] = c.in[0].shape[2];
  args.dim[2] = c.in[1].shape[2];
  args.dim[3] = c.in[4].shape[0];
  args.dim[4] = c.in[4].shape[1];
  args.dim[5] = Dim(bf16_dot_is_fast() ? 1 : 0);
  args.scalar[0] = c.attrs->number("scale");
}

size_t attention_workspace(const OpCall& c, const LiveSizes& bound, int ranks) {
  AttentionSizes z;
  z.heads = c.in[0].shape[1].factor;
  z.kv_heads = 1;
  z.size = c.in[0].shape[2].factor;
  z.key_size = z.size + c.in[1].shape[2].factor;
  z.columns = c.in[4].shape[1].value(bound);
  return static_cast<size_t>(z.rank_floats(ranks)) * sizeof(float) * static_cast<size_t>(ranks);
}

template <DType T>
void add(KernelRegistry& kernels, Isa isa, CpuKernel linear, CpuKernel attention, CpuKernel merge, CpuKernel expanded) {
  for (const bool rows : {false, true}) {
    KernelEntry heads =
        entry_of(rows ? "head_linear_rows" : "head_linear", dtype_name(T), isa, accepts<T>, bind_head_linear, linear);
    if (T != DType::F32 || rows) heads.workspace = head_linear_workspace;
    heads.param_layouts = {"panel64"};
    kernels.add(std::move(heads));
  }
  KernelEntry latent = entry_of("latent_attention", dtype_name(T), isa, accepts<T>, bind_attention, attention, merge);
  latent.workspace = attention_workspace;
  kernels.add(std::move(latent));
  KernelEntry own =
      entry_of("expanded_latent_attention", dtype_name(T), isa, accepts_expanded<T>, bind_expanded, expanded);
  own.workspace = expanded_workspace;
  own.param_layouts = {"panel64"};
  kernels.add(std::move(own));
}

}  // namespace

void register_latent(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  add<DType::F32>(kernels, isa, k.head_linear_f32, k.latent_attention_f32, k.latent_attention_merge_f32,
                  k.expanded_latent_attention_f32);
  add<DType::BF16>(kernels, isa, k.head_linear_bf16, k.latent_attention_bf16, k.latent_attention_merge_bf16,
                   k.expanded_latent_attention_bf16);
  add<DType::F16>(kernels, isa, k.head_linear_f16, k.latent_attention_f16, k.latent_attention_merge_f16,
                  k.expanded_latent_attention_f16);
  kernels.add(entry_of("latent_forms", "", isa, accepts_all, bind_forms, k.latent_forms));
  kernels.add(entry_of("row_write", "", isa, accepts_all, bind_row_write, k.row_write));
}

}  // namespace reprise::cpu
