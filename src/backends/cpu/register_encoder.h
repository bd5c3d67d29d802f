// register_encoder: the CPU kernel entries of encoders and of pooled outputs, as register.h has the others.
#pragma once

#include "backends/cpu/isa.h"
#include "ops/kernel.h"

namespace reprise::cpu {

void register_encoder(KernelRegistry& kernels, Isa isa);

}  // namespace reprise::cpu
