// Entries of the int8 linears and of the ops fused with them.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/kernels/w8a8_shape.h"
#include "backends/cpu/register.h"

namespace reprise::cpu {
namespace {

size_t weight_of(const OpCall& c) { return c.op->first(OperandRole::Weight); }

template <DType kOut>
Status accepts_w8a8(const OpCall& c) {
  if (c.out[0].dtype == kOut) return Status::ok();
  return error(Code::Unsupported, "gives {}; the call gives {}", dtype_name(kOut), dtype_name(c.out[0].dtype));
}

void bind_w8a8(const OpCall& c, LaunchArgs& args) {
  const Shape& weight = c.in[weight_of(c)].shape;
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = weight[1];
  args.dim[2] = weight[0];
}

void bind_grouped(const OpCall& c, LaunchArgs& args) {
  const Shape& stack = c.in[weight_of(c)].shape;
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = stack[2];
  args.dim[2] = stack[1];
  args.dim[3] = stack[0];
}

void bind_quantize_groups(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.dim[2] = c.in[2].shape[0];
}

template <DType T>
Status accepts_rows(const OpCall& c) {
  if (c.in[0].dtype == T) return Status::ok();
  return error(Code::Unsupported, "takes {}, not {}", dtype_name(T), describe(c));
}

// Words of a prepared row of x per group of four k: w8a8_tiles.h.
int x_words(Isa isa) {
#if defined(__x86_64__)
  return isa == Isa::Avx512 ? 1 : 2;
#else
  return 1;
#endif
}

size_t workspace_w8a8(const OpCall& c, const LiveSizes& bound, int ranks, int words) {
  return static_cast<size_t>(ranks) * w8a8_rank_bytes(c.in[0].shape[0].value(bound), c.in[0].shape[1].factor, words);
}

template <DType kOut>
void add(KernelRegistry& kernels, Isa isa, std::string_view op, CpuKernel kernel,
         void (*bind)(const OpCall&, LaunchArgs&) = bind_w8a8) {
  KernelEntry e = entry_of(op, dtype_name(kOut), isa, accepts_w8a8<kOut>, bind, kernel);
  e.workspace = [words = x_words(isa)](const OpCall& c, const LiveSizes& bound, int ranks) {
    return workspace_w8a8(c, bound, ranks, words);
  };
  e.param_layouts = {"panel64"};
  kernels.add(std::move(e));
}

}  // namespace

void register_w8a8(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  add<DType::F32>(kernels, isa, "linear_w8a8_static", k.linear_w8a8_static_f32);
  add<DType::BF16>(kernels, isa, "linear_w8a8_static", k.linear_w8a8_static_bf16);
  add<DType::F16>(kernels, isa, "linear_w8a8_static", k.linear_w8a8_static_f16);
  add<DType::F32>(kernels, isa, "linear_w8a8_dynamic", k.linear_w8a8_dynamic_f32);
  add<DType::BF16>(kernels, isa, "linear_w8a8_dynamic", k.linear_w8a8_dynamic_bf16);
  add<DType::F16>(kernels, isa, "linear_w8a8_dynamic", k.linear_w8a8_dynamic_f16);

  add<DType::F32>(kernels, isa, "grouped_linear_w8a8_static", k.grouped_linear_w8a8_static_f32, bind_grouped);
  add<DType::BF16>(kernels, isa, "grouped_linear_w8a8_static", k.grouped_linear_w8a8_static_bf16, bind_grouped);
  add<DType::F16>(kernels, isa, "grouped_linear_w8a8_static", k.grouped_linear_w8a8_static_f16, bind_grouped);
  add<DType::F32>(kernels, isa, "grouped_linear_w8a8_dynamic", k.grouped_linear_w8a8_dynamic_f32, bind_grouped);
  add<DType::BF16>(kernels, isa, "grouped_linear_w8a8_dynamic", k.grouped_linear_w8a8_dynamic_bf16, bind_grouped);
  add<DType::F16>(kernels, isa, "grouped_linear_w8a8_dynamic", k.grouped_linear_w8a8_dynamic_f16, bind_grouped);
  kernels.add(
      entry_of("quantize_groups", "f32", isa, accepts_rows<DType::F32>, bind_quantize_groups, k.quantize_groups_f32));
  kernels.add(entry_of("quantize_groups", "bf16", isa, accepts_rows<DType::BF16>, bind_quantize_groups,
                       k.quantize_groups_bf16));
  kernels.add(
      entry_of("quantize_groups", "f16", isa, accepts_rows<DType::F16>, bind_quantize_groups, k.quantize_groups_f16));

  const auto accepts = [](const OpCall&) { return Status::ok(); };  // there is one type of it
  KernelEntry e =
      entry_of("lm_head_argmax_w8a8", "", isa, accepts, bind_w8a8, k.lm_head_argmax_w8a8, k.lm_head_argmax_w8a8_merge);
  e.workspace = [words = x_words(isa)](const OpCall& c, const LiveSizes& bound, int ranks) {
    return workspace_w8a8(c, bound, ranks, words) + best_bytes(c.in[0].shape[0].value(bound), ranks);
  };
  e.param_layouts = {"panel64"};
  kernels.add(std::move(e));
}

}  // namespace reprise::cpu
