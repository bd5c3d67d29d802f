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

}  // namespace reprise::cpu
