// `reprise tune`: settings for a model on this machine, measured, as a file for `reprise serve --config`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "base/file.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "measurement/machine_probe.h"
#include "tuning/engine_candidates.h"

namespace reprise::apps {
namespace {

struct TuneFlags {
  ModelFlags model;
  std::string request_log, output;
  int64_t concurrency = 8, input_len = 512, output_len = 128;
  bool json = false;

  Status check() const {
    RETURN_IF_ERROR(model.check());
    if (model.tp_size > 1 || model.dp_size > 1)
      return invalid("tune measures one rank; allowed: --tp-size 1, --dp-size 1");
    return Status::ok();
  }
};

Result<tuning::TrafficProfile> traffic_of(const TuneFlags& f) {
  if (!f.request_log.empty()) return tuning::traffic_of_log(f.request_log);
  const auto all = [](int64_t n) { return tuning::Spread{n, n, n}; };
  return tuning::TrafficProfile{0, all(f.input_len), all(f.output_len), all(f.concurrency)};
}

Status run_tune(const TuneFlags& f) {
  ASSIGN_OR_RETURN(const tuning::TrafficProfile traffic, traffic_of(f));
  RETURN_IF_ERROR(service::model_on_disk(f.model.model_path, f.model.hub).status());
  ModelFlags model = f.model;
  model.bars = false;
  const tuning::EngineCandidates candidates(service::engine_settings(model), model.launcher.notices());
  ASSIGN_OR_RETURN(const tuning::Tuning t, tuning::tune_model(candidates, traffic));
  const measurement::Machine machine = measurement::describe_machine();
  const std::string file = tuning::tuned_file(t, f.model.model_path, machine.cpu, traffic);
  if (!f.output.empty()) RETURN_IF_ERROR(write_file_atomically(f.output, file));
  if (f.json) {
    fmt::print("{}\n", tuning::tuning_json(t, traffic).dump());
    return Status::ok();
  }
  fmt::print("{}", tuning::tuning_text(t));
  if (f.output.empty())
    fmt::print("\n{}", file);
  else
    fmt::print("\nwritten to {0}; next: reprise serve --config {0}\n", f.output);
  return Status::ok();
}

}  // namespace

Command add_tune(CLI::App& program) {
  auto flags = std::make_shared<TuneFlags>();
  flags->model.model_path = api::kDefaultModelName;
  flags->model.quiet_start = true;
  CLI::App* app = program.add_subcommand("tune", "Measure settings for a model, this machine and given traffic");
  app->option_defaults()->group("Traffic");
  add_text(*app, "--request-log", flags->request_log,
           "what `reprise serve --request-log` wrote; in place of the three below", "FILE");
  add_integer(*app, "--concurrency", flags->concurrency, {1, 4096}, "requests at a time");
  add_integer(*app, "--input-len", flags->input_len, {2, 1 << 24}, "tokens of a prompt");
  add_integer(*app, "--output-len", flags->output_len, {2, 1 << 24}, "tokens of an answer");
  app->option_defaults()->group("Output");
  add_text(*app, "--output,-o", flags->output, "write the file of settings here, for `reprise serve --config`", "FILE");
  add_switch(*app, "--json", flags->json, "what was tried and chosen, as one JSON object on standard output");
  flags->model.add_to(*app);
  app->footer(
      "Threads and the step of a prompt are measured, one engine for each candidate; requests at a time, the KV cache\n"
      "and captured sizes follow from the traffic. Run it on a quiet machine.");
  return {app, [flags] { return flags->check(); }, [flags] { return run_tune(*flags); }};
}

}  // namespace reprise::apps
