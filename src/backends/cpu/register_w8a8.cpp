// Entries of the int8 linears and of the ops fused with them.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/table.h"
#include "backends/cpu/kernels/w8a8_shape.h"
#include "backends/cpu/register.h"

namespace reprise::cpu {
namespace {

size_t weight_of(const OpCall& c) {
  size_t i = 0;
  while (c.op->operands[i].name != "weight") ++i;
  return i;
}

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

// Words of a prepared row of x per group of four k: w8a8_tiles.h.
int x_words(Isa isa) { return isa == Isa::Avx512 ? 1 : 2; }

size_t workspace_w8a8(const OpCall& c, const LiveSizes& bound, int ranks, int words) {
  return static_cast<size_t>(ranks) * w8a8_rank_bytes(c.in[0].shape[0].value(bound), c.in[0].shape[1].factor, words);
}

template <DType kOut>
void add(KernelRegistry& kernels, Isa isa, std::string_view op, CpuKernel kernel) {
  KernelEntry e;
  e.name = fmt::format("cpu.{}.{}.{}", op, dtype_name(kOut), isa_name(isa));
  e.op = op;
  e.score = 100;
  e.accepts = accepts_w8a8<kOut>;
  e.bind = bind_w8a8;
  e.workspace = [words = x_words(isa)](const OpCall& c, const LiveSizes& bound, int ranks) {
    return workspace_w8a8(c, bound, ranks, words);
  };
  e.phase[0] = opaque(kernel);
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

  KernelEntry e;
  e.name = fmt::format("cpu.lm_head_argmax_w8a8.{}", isa_name(isa));
  e.op = "lm_head_argmax_w8a8";
  e.score = 100;
  e.accepts = [](const OpCall&) { return Status::ok(); };  // there is one type of it
  e.bind = bind_w8a8;
  e.workspace = [words = x_words(isa)](const OpCall& c, const LiveSizes& bound, int ranks) {
    return workspace_w8a8(c, bound, ranks, words) + best_bytes(c.in[0].shape[0].value(bound), ranks);
  };
  e.phase = {opaque(k.lm_head_argmax_w8a8), opaque(k.lm_head_argmax_w8a8_merge)};
  e.param_layouts = {"panel64"};
  kernels.add(std::move(e));
}

}  // namespace reprise::cpu
