// `reprise tune`: settings for a model on this machine, measured, as a file for `reprise serve --config`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "base/file.h"
#include "base/kv_page.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "measurement/machine_probe.h"
#include "measurement/one_batch.h"
#include "tuning/tuner.h"

namespace reprise::apps {
namespace {

constexpr int64_t kRepeats = 3;
constexpr double kForPages = 0.85;  // of free memory, less weights and activations

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

// The flags with which a candidate's engine is opened.
ModelFlags flags_of(const TuneFlags& f, const tuning::Candidate& c, int64_t batch) {
  ModelFlags m = f.model;
  m.quiet_start = true;
  m.bars = false;
  if (c.threads > 0) m.threads = c.threads;
  if (c.chunk > 0) m.chunked_prefill_size = c.chunk;
  m.max_running_requests = std::max(m.max_running_requests, batch);
  return m;
}

Result<tuning::CandidateSpeed> measure(const TuneFlags& f, const tuning::Candidate& c, int64_t batch, int64_t input,
                                       int64_t output) {
  ASSIGN_OR_RETURN(const auto engine, open_engine(flags_of(f, c, batch)));
  measurement::OneBatch plan;
  plan.input_len = input;
  plan.output_len = output;
  plan.repeat = 1;
  Progress none("", 1, false);
  RETURN_IF_ERROR(
      measurement::measure_one_batch(*engine, plan, batch, none).status());  // memory is touched, threads are awake
  plan.repeat = kRepeats;
  ASSIGN_OR_RETURN(const measurement::OneBatchRow row, measurement::measure_one_batch(*engine, plan, batch, none));
  const auto tokens = static_cast<double>(batch);
  return tuning::CandidateSpeed{tokens * static_cast<double>(input) / row.prefill_s,
                                tokens * static_cast<double>(output - 1) / row.decode_s};
}

Result<tuning::TuneBounds> bounds_of(const TuneFlags& f) {
  ASSIGN_OR_RETURN(const auto engine, open_engine(flags_of(f, {}, 1)));
  const DeviceInfo& info = engine->device().info();
  tuning::TuneBounds b;
  b.processors = measurement::describe_machine().threads;
  b.threads_matter = info.kind == DeviceKind::Cpu;
  b.live_sizes = info.live_sizes;
  b.context_length = engine->context_length();
  b.page_tokens = kPageTokens;
  const engine::MemoryReport memory = engine->memory();
  const auto free = static_cast<double>(info.free_bytes ? info.free_bytes : info.memory_bytes);
  const double room = kForPages * free - static_cast<double>(memory.weight_bytes + memory.activation_bytes);
  if (free > 0 && memory.kv_page_bytes > 0)
    b.most_cached_tokens =
        std::max<int64_t>(1, static_cast<int64_t>(room / static_cast<double>(memory.kv_page_bytes))) * b.page_tokens;
  return b;
}

Status run_tune(const TuneFlags& f) {
  ASSIGN_OR_RETURN(const tuning::TrafficProfile traffic, traffic_of(f));
  ASSIGN_OR_RETURN(const tuning::TuneBounds bounds, bounds_of(f));
  if (const int64_t longest = std::max(traffic.prompt.usual, traffic.prompt.large); longest >= bounds.context_length)
    return invalid("prompts of {} tokens; the context length is {}", longest, bounds.context_length);
  Progress bar("tuning", tuning::tune_steps(traffic, bounds));
  ASSIGN_OR_RETURN(const tuning::Tuning t, tuning::tune(
                                               traffic, bounds,
                                               [&](const tuning::Candidate& c, int64_t batch, int64_t input,
                                                   int64_t output) { return measure(f, c, batch, input, output); },
                                               bar));
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
