// `reprise graph dump`: the graph after all passes, for people, for programs and as a report.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/profile_flags.h"
#include "graph/text.h"
#include "measurement/machine_probe.h"
#include "see/html_report.h"
#include "service/local_ranks.h"
#include "settings/setting.h"

namespace reprise::apps {

using namespace see;

namespace {

struct DumpFlags {
  ModelFlags model;
  ProfileOptions profile;  // of the HTML report
  std::string format = "text";
  std::string output;
  bool no_timing = false;
  int64_t rank = 0;
};

Result<std::string> report(const service::LocalRanks& ranks, PhaseView view, const DumpFlags& f) {
  HtmlReport r{ranks.at(f.rank), std::move(view), f.model.model_path, std::nullopt};
  if (!f.no_timing) {
    ASSIGN_OR_RETURN(auto profiles, profile_ranks(ranks.all(), f.profile));
    r.profile = std::move(profiles[static_cast<size_t>(f.rank)].profile);
    r.profile->machine = measurement::measure_machine(r.profile->tracks);
    r.view.program = r.view.runner->last_program();
  }
  return html_report(r);
}

Status run_dump(DumpFlags f) {
  const bool html = f.format == "html";
  if (html) {
    f.model.graph.keep_graphs = true;
    if (!f.no_timing) make_room(f.profile, f.model);
  }
  const bool timed = html && !f.no_timing;
  ASSIGN_OR_RETURN(
      const service::LocalRanks ranks,
      service::open_local_ranks(f.model, timed ? service::RankProcessors::Apart : service::RankProcessors::Same));
  engine::Engine& e = ranks.at(f.rank);
  ASSIGN_OR_RETURN(const PhaseView view, view_of_phase(e, f.profile.phase));
  std::string text;
  if (html) {
    ASSIGN_OR_RETURN(text, report(ranks, view, f));
    text = settings::as_flags(text);
  } else if (f.format == "json") {
    text = settings::as_flags(dump_json(e, view).dump()) + "\n";
  } else {
    text = f.format == "dot" ? dump_dot(view.model()) : print(view.model().graph());
  }
  if (!f.output.empty()) return write_file_atomically(f.output, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return Status::ok();
}

}  // namespace

Command add_graph_dump(CLI::App& graph) {
  auto flags = std::make_shared<DumpFlags>();
  CLI::App* app = graph.add_subcommand("dump", "The graph after all passes: IR text, JSON, DOT, or an HTML report");
  add_choice(*app, "--format", flags->format, {"text", "json", "dot", "html"},
             "IR text; JSON; DOT for graphviz; html: one page with everything, also before and after every pass");
  add_text(*app, "--output", flags->output, "write there instead of to standard output", "FILE");
  add_switch(*app, "--no-timing", flags->no_timing, "html: leave the measured times out");
  add_profile_flags(*app, flags->profile);
  flags->model.add_to(*app);
  app->footer("--batch, --context and --repeat are about the step that the HTML report times.");
  add_rank(*app, flags->rank);
  return {app,
          [flags]() -> Status {
            RETURN_IF_ERROR(flags->model.check());
            return check_rank(flags->model, flags->rank);
          },
          [flags] { return run_dump(*flags); }};
}

}  // namespace reprise::apps
