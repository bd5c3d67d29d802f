// What the environment says about passes, for `./dev bisect`, which runs tests and commands whose flags it does not
// know: REPRISE_PASS_BISECT_LIMIT (as --pass-bisect-limit) and REPRISE_DUMP_DIR (as --dump-dir, each engine in a
// numbered folder of its own). Only programs and tests call this.
#pragma once

#include "passes/pass_manager.h"

namespace reprise {

// Options that are set already stay. A value that is no number is an error.
Status apply_pass_environment(PassOptions& options);

}  // namespace reprise
