// register_cpu: every CPU kernel entry and parameter layout of one instruction set, by explicit calls; what these have
// in common.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"
#include "ops/kernel.h"

namespace reprise::cpu {

void register_linear(KernelRegistry& kernels, Isa isa);  // linear and ops fused with it, embedding, the panel64 layout
void register_w8a8(KernelRegistry& kernels, Isa isa);    // int8 linears and ops fused with them
void register_packed(KernelRegistry& kernels, Isa isa);  // the same on weights in GGUF blocks
void register_attention(KernelRegistry& kernels, Isa isa);  // kv_write, paged_attention
void register_latent(KernelRegistry& kernels, Isa isa);     // multi-head latent attention
void register_experts(KernelRegistry& kernels, Isa isa);    // mixtures of experts
void register_vector(KernelRegistry& kernels, Isa isa);     // norms, rope, elementwise, rows, int8, argmax
void register_fused(KernelRegistry& kernels, Isa isa);      // the fused ops of nn/fused.h

void register_cpu(KernelRegistry& kernels, Isa isa);

// An entry "cpu.OP.DTYPE.ISA" ("cpu.OP.ISA" where one kernel serves every dtype) for the files above to complete: it
// has no workspace and takes parameters as they are.
KernelEntry entry_of(std::string_view op, std::string_view dtype, Isa isa, Status (*accepts)(const OpCall&),
                     void (*bind)(const OpCall&, LaunchArgs&), CpuKernel first, CpuKernel second = nullptr);

}  // namespace reprise::cpu
