// kernels_here: whether a program has kernels that its processor can run. Those of `./dev demo` have the kernels of the
// processor that built them alone. Pure function.
#pragma once

#include <vector>

#include "backends/cpu/isa.h"
#include "base/status.h"

namespace reprise::apps {

// `built`: sets of the program; `supported`: those of them that the processor has too. Unsupported where there are
// none.
Status kernels_here(const std::vector<cpu::Isa>& built, const std::vector<cpu::Isa>& supported);

}  // namespace reprise::apps
