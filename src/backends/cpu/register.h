// register_cpu: every CPU kernel entry and parameter layout of one instruction set, by explicit calls.
#pragma once

#include "backends/cpu/isa.h"
#include "ops/kernel.h"

namespace reprise::cpu {

void register_linear(KernelRegistry& kernels, Isa isa);     // linear, embedding, the panel64 layout
void register_attention(KernelRegistry& kernels, Isa isa);  // kv_write, paged_attention
void register_vector(KernelRegistry& kernels, Isa isa);     // norms, rope, elementwise, rows

void register_cpu(KernelRegistry& kernels, Isa isa);

}  // namespace reprise::cpu
