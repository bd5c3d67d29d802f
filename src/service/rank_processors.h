// processors_of(): the processors that the ranks of a host share out, by the settings, or by variables of SGLang and
// vLLM. A plain function; main thread.
#pragma once

#include "ranks/processors.h"
#include "service/run_settings.h"

namespace reprise::service {

// Processors that `shares` ranks of this host share out, as the settings say or, without these and on the CPU,
// variables of SGLang and vLLM; a variable that does not fit is warned of. Where ranks were `launched`, they may be any
// of the machine's, since a launcher may have bound this rank to its own.
Result<ranks::Processors> processors_of(const RunSettings& settings, int shares, bool launched = false);

}  // namespace reprise::service
