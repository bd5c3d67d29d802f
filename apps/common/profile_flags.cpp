#include "common/profile_flags.h"

#include <CLI/CLI.hpp>

#include "common/flags.h"

namespace reprise::apps {

void add_profile_flags(CLI::App& app, see::ProfileOptions& o) {
  add_choice(app, "--phase", o.phase, {"decode", "prefill"}, "which graph");
  add_integer(app, "--batch", o.batch, {1, 4096}, "sequences of the step");
  add_integer(app, "--context", o.context, {1, 1 << 24}, "tokens of each sequence; prefill: of each prompt");
  add_integer(app, "--repeat", o.repeat, {1, 1000}, "steps to time; medians are shown");
}

void make_room(const see::ProfileOptions& o, ModelFlags& f) {
  if (f.max_total_tokens == 0) f.max_total_tokens = o.batch * kv::pages_for(o.context) * kv::kPageTokens;
}

}  // namespace reprise::apps
