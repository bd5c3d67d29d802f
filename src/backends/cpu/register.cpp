#include "backends/cpu/register.h"

namespace reprise::cpu {

void register_cpu(KernelRegistry& kernels, Isa isa) {
  register_linear(kernels, isa);
  register_w8a8(kernels, isa);
  register_packed(kernels, isa);
  register_attention(kernels, isa);
  register_latent(kernels, isa);
  register_experts(kernels, isa);
  register_vector(kernels, isa);
  register_fused(kernels, isa);
}

KernelEntry entry_of(std::string_view op, std::string_view dtype, Isa isa, Status (*accepts)(const OpCall&),
                     void (*bind)(const OpCall&, LaunchArgs&), CpuKernel first, CpuKernel second) {
  KernelEntry e;
  e.name = fmt::format("cpu.{}{}{}.{}", op, dtype.empty() ? "" : ".", dtype, isa_name(isa));
  e.op = op;
  e.score = 100;
  e.accepts = accepts;
  e.bind = bind;
  e.phase[0] = opaque(first);
  if (second) e.phase[1] = opaque(second);
  return e;
}

}  // namespace reprise::cpu
