// The flags that say which step is profiled, shared by the commands that do so.
#pragma once

#include "common/model_flags.h"
#include "see/step_profile.h"

namespace reprise::apps {

void add_profile_flags(CLI::App& app, see::ProfileOptions& options);

// The KV cache that the step needs and no more, unless the flags ask for one.
void make_room(const see::ProfileOptions& options, ModelFlags& flags);

}  // namespace reprise::apps
