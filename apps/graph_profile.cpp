// `reprise graph profile`: where the time of one step goes, thread by thread, as it really runs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "command.h"
#include "common/device_probe.h"
#include "common/flags.h"
#include "common/machine_probe.h"
#include "common/model_flags.h"
#include "common/profile_flags.h"

namespace reprise::apps {

using namespace see;
namespace {

struct GraphProfileFlags {
  ModelFlags model;
  ProfileOptions profile;
  std::string output;
  bool json = false;
};

Status run_profile(GraphProfileFlags f) {
  make_room(f.profile, f.model);
  ASSIGN_OR_RETURN(auto e, open_engine(f.model));
  ASSIGN_OR_RETURN(StepProfile p, profile_step(*e, f.profile));
  p.machine = measure_speed_of(e->device().info(), p.tracks);
  const auto* runner = e->runner(f.profile.phase);
  const CompiledModel& model = *runner->last_program();
  if (!f.output.empty()) {
    const std::string title = fmt::format("{} {}", f.model.model_path, e->device().info().name);
    RETURN_IF_ERROR(write_file_atomically(f.output, chrome_trace(p, model, title).dump() + "\n"));
  }
  if (f.json)
    fmt::print("{}\n", profile_json(p, model).dump());
  else
    fmt::print("{}", profile_text(p, model));
  return Status::ok();
}

}  // namespace

Command add_graph_profile(CLI::App& graph) {
  auto flags = std::make_shared<GraphProfileFlags>();
  CLI::App* app = graph.add_subcommand("profile", "Where the time of one step goes: every kernel and every wait");
  add_profile_flags(*app, flags->profile);
  add_text(*app, "--output", flags->output, "write one step here as a trace for Perfetto or chrome://tracing", "FILE");
  add_switch(*app, "--json", flags->json, "one JSON object on standard output");
  flags->model.add_to(*app);
  return {app, [flags] { return flags->model.check(); }, [flags] { return run_profile(*flags); }};
}

}  // namespace reprise::apps
