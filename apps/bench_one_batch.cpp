// `reprise bench one-batch`: one batch of random prompts through the model, timed step by step, compared with what the
// machine can do at best (measured in the same run, before and after).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "api/device_choice.h"
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "engine/engine.h"
#include "measurement/device_probe.h"
#include "measurement/one_batch_report.h"
#include "measurement/step_cost.h"

namespace reprise::apps {

using namespace api;
using namespace see;

namespace {

constexpr const char* kModelledTime = "modelled time, not measured on a device";

struct BenchFlags {
  ModelFlags model;
  std::vector<int64_t> batch_sizes{1};
  int64_t input_len = 512;
  int64_t output_len = 64;
  int64_t repeat = 3;
  double temperature = 0;
  std::optional<double> acceptance;  // of synthetic drafts
  bool json = false;
  spec::SpecOptions speculation = {};  // what the model's settings say
};

std::string percent(const OrderedJson& v) { return v.is_null() ? "-" : fmt::format("{:.1f}", v.get<double>()); }

// Prints how many drafts a step had, how many came true in each place, and what that gained.
void print_drafts(const OrderedJson& r) {
  fmt::print("{} at batch {}: {:.2f} tokens a step of a sequence; {} of {} drafts came true\n",
             r["speculative"].get<std::string>(), r["batch_size"].get<int64_t>(), r["tokens_per_step"].get<double>(),
             r["accepted_tokens"].get<int64_t>(), r["draft_tokens"].get<int64_t>());
  if (!r.contains("synthetic_acceptance")) return;
  std::string places;
  for (const auto& count : r["accepted_per_position"])
    places += fmt::format("{}{}", places.empty() ? "" : ", ", count.get<int64_t>());
  fmt::print(
      "  synthetic: drafts are the known answer, each token right with chance {:.2f} by the seed; no drafter is "
      "measured\n"
      "  {:.2f} times the {:.1f} tok/s without drafts{}; came true by position, in {} steps: {}\n",
      r["synthetic_acceptance"].get<double>(), r["speed_up"].get<double>(), r["plain_decode_tok_s"].get<double>(),
      r["same_answers"].get<bool>() ? ", the same answers" : "", r["drafts"].get<int64_t>(), places);
}

void print_table(const OrderedJson& report) {
  fmt::print("{:>5} {:>6} {:>6} {:>14} {:>13} {:>9} {:>9} {:>7} {:>9} {:>6} {:>9} {:>6}\n", "batch", "input", "output",
             "prefill tok/s", "decode tok/s", "p50 ms", "p99 ms", "gap us", "GB/s", "%", "GFLOP/s", "%");
  for (const auto& r : report["rows"]) {
    fmt::print("{:>5} {:>6} {:>6} {:>14.1f} {:>13.1f} {:>9.2f} {:>9.2f} {:>7.1f} {:>9.2f} {:>6} {:>9.1f} {:>6}\n",
               r["batch_size"].get<int64_t>(), r["input_len"].get<int64_t>(), r["output_len"].get<int64_t>(),
               r["prefill_tok_s"].get<double>(), r["decode_tok_s"].get<double>(), r["step_ms_p50"].get<double>(),
               r["step_ms_p99"].get<double>(), r["gap_us"].get<double>(), r["achieved_GBps"].get<double>(),
               percent(r["pct_bandwidth"]), r["achieved_GFLOPs"].get<double>(), percent(r["pct_peak"]));
  }
  for (const auto& r : report["rows"])
    if (r.contains("tokens_per_step")) print_drafts(r);
  if (report.contains("time")) {
    fmt::print("{}:\n", report["time"].get<std::string>());
    for (const auto& line : report["clock_note"]) fmt::print("  {}\n", line.get<std::string>());
    return;
  }
  if (const auto& rows = report["rows"]; !rows.empty() && rows[0].contains("ranks")) {
    std::string waits;
    for (const auto& r : rows)
      waits += fmt::format("{}{:.0f} us at batch {}", waits.empty() ? "" : ", ", r["rank_wait_us"].get<double>(),
                           r["batch_size"].get<int64_t>());
    fmt::print("{} ranks: GB/s are of the bytes that rank 0 reads; it waits for others {} in a decode step\n",
               rows[0]["ranks"].get<int>(), waits);
    return;
  }
  const auto& l = report["limits"];
  if (l["fp32_gflops"].get<double>() > 0)
    fmt::print("limits here: read {} GB/s, fp32 {} GFLOP/s, bf16 {} GFLOP/s\n", l["read_GBps_all"].dump(),
               l["fp32_gflops"].dump(), l["bf16_gflops"].dump());
  else
    fmt::print("limits here: {} GB/s, a copy within the device's memory, read and written\n",
               l["read_GBps_all"].dump());
  for (const auto& w : l["warnings"])
    fmt::print("{} {}\n", coloured(Colour::Yellow, "warning:", stdout), w.get<std::string>());
}

// What the runs need of the model, and no more.
Status check_bench(BenchFlags& f) {
  const int64_t largest = *std::max_element(f.batch_sizes.begin(), f.batch_sizes.end());
  if (f.acceptance && f.model.speculation.algorithm == "none" && !f.model.speculation.config)
    f.model.speculation.algorithm = spec::algorithm_name(spec::Algorithm::Ngram);  // as many drafts as that has
  ASSIGN_OR_RETURN(f.speculation, f.model.speculation.options());
  if (f.acceptance && spec::drafts_by_model(f.speculation.algorithm))
    return invalid(
        "--speculative-synthetic-acceptance with `speculative_algorithm` {}: its drafts are of no model; "
        "allowed with it: NGRAM, SUFFIX, none",
        spec::algorithm_name(f.speculation.algorithm));
  // A draft is a row, as a sequence is.
  const bool drafts = f.speculation.algorithm != spec::Algorithm::None;
  f.model.max_running_requests = drafts ? std::min<int64_t>(4096, largest * f.speculation.draft_tokens) : largest;
  if (f.model.max_total_tokens == 0)
    f.model.max_total_tokens =
        largest * kv::pages_for(f.input_len + f.output_len + f.speculation.draft_tokens) * kv::kPageTokens;
  return f.model.check();
}

Status run_bench(const BenchFlags& f) {
  const measurement::Machine machine = measurement::describe_machine();
  const int threads =
      f.model.threads > 0 ? std::min(machine.threads, static_cast<int>(f.model.threads)) : machine.threads;
  // The limits of another device are known once it is open; nothing else runs on it before.
  ASSIGN_OR_RETURN(const DeviceOptions device, device_options(f.model.device, f.model.ascend_runtime, ::getenv));
  const bool ranked = f.model.tp_size > 1;  // the front sees only its own processors, and no limits of the machine
  const bool on_processor = device.kind != DeviceKind::Cuda && device.ascend_runtime != "sim" && !ranked;
  const MachineSpeed first = on_processor ? measurement::measure_machine(threads) : MachineSpeed{};
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  // Where time is modelled it is another machine's: the limits of this one say nothing about it.
  const bool modelled = engine->device().clock_us().has_value();
  const auto of_device = [&] {
    return modelled || ranked ? MachineSpeed{} : measurement::measure_speed_of(engine->device().info(), threads);
  };
  const MachineSpeed before = on_processor ? first : of_device();
  if (f.input_len + f.output_len > engine->context_length())
    return invalid("--input-len {} and --output-len {} need a context of {}, but it is {}", f.input_len, f.output_len,
                   f.input_len + f.output_len, engine->context_length());

  const measurement::OneBatch plan{
      f.input_len,   f.output_len,  f.repeat,    static_cast<uint64_t>(f.model.random_seed),
      f.temperature, f.speculation, f.acceptance};
  ASSIGN_OR_RETURN(const auto rows, measurement::measure_batches(*engine, plan, f.batch_sizes));
  const MachineSpeed after = of_device();
  OrderedJson report;
  report["limits"] = measurement::limits_json(machine, before, after);
  report["limits"]["order"] = engine->device().info().order;
  if (engine->device().clock_us()) {
    report["time"] = kModelledTime;
    report["clock_note"] = clock_lines(engine->device());
  }
  measurement::RowSettings settings{f.model.graph.passes.value_or("all")};
  if (f.model.member) settings.ranks = f.model.member->world().size;
  report["rows"] = OrderedJson::array();
  for (const measurement::OneBatchRow& row : rows)
    report["rows"].push_back(
        measurement::one_batch_json(*engine, plan, row, measurement::between(before, after), settings));
  if (f.json) {
    fmt::print("{}\n", report.dump());
  } else {
    print_table(report);
  }
  return Status::ok();
}

}  // namespace

Command add_bench_one_batch(CLI::App& bench) {
  auto flags = std::make_shared<BenchFlags>();
  flags->model.model_path = kDefaultModelName;
  Command c;
  c.app = bench.add_subcommand("one-batch", "Speed of prefill and decode for batches of random prompts");
  add_integers(*c.app, "--batch-size", flags->batch_sizes, {1, 4096}, "sequences decoded together; one row each");
  add_integer(*c.app, "--input-len,--context-len", flags->input_len, {1, 1 << 24}, "tokens of each prompt");
  add_integer(*c.app, "--output-len", flags->output_len, {2, 1 << 24}, "tokens generated for each");
  add_real(*c.app, "--temperature", flags->temperature, {0, 1000},
           "above 0, tokens of decode steps are drawn on the device");
  add_integer(*c.app, "--repeat", flags->repeat, {1, 1000}, "runs of each row; medians are shown");
  add_real(*c.app, "--speculative-synthetic-acceptance", flags->acceptance, {0, 1},
           "each repeat runs without drafts, then with the known answer as drafts, right with this chance by the seed");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  flags->model.add_to(*c.app);
  c.app->footer(
      "Works without a tokenizer, and with --load-format dummy from config.json alone. decode tok/s is summed over "
      "the\n"
      "batch. gap us: median time between two decode steps in which the device was idle. GB/s: weights and KV bytes\n"
      "that a decode step must read, over its time; %: of the read bandwidth measured in this run. Experts count as "
      "far as a batch reaches them by chance. GFLOP/s: multiplications and additions of "
      "the\n"
      "linear layers in prefill, over its time; %: of the peak for\n"
      "the dtype (bf16: the faster of the bf16 dot product and fp32; int8 linears: that of int8).");
  c.check = [flags] { return check_bench(*flags); };
  c.over_ranks = [flags] { return &flags->model; };
  c.run = [flags] { return run_bench(*flags); };
  return c;
}

}  // namespace reprise::apps
