// register_recurrent: the CPU kernel entries of layers with a state for each sequence, as register.h has the others.
#pragma once

#include "backends/cpu/isa.h"
#include "ops/kernel.h"

namespace reprise::cpu {

void register_recurrent(KernelRegistry& kernels, Isa isa);

}  // namespace reprise::cpu
