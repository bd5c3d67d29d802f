// `reprise bench startup`: from process start to the first token, with empty and with filled caches. Every start is a
// process of its own.
#include <CLI/CLI.hpp>
#include <memory>

#include "api/default_model.h"
#include "backends/cpu/isa.h"
#include "base/json.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "measurement/startup.h"

namespace reprise::apps {

using namespace api;

namespace {

struct StartupFlags {
  std::string model_path{kDefaultModelName};
  std::string dtype = "auto", isa = "auto";
  HubOptions hub;
  int64_t threads = 0, prompt_len = 16, repeat = 5;
  bool evict = false, json = false;
};

// `generate` of this program, for one token.
std::vector<std::string> start_command(const StartupFlags& f, const std::string& model, const std::string& cache) {
  std::vector<int64_t> prompt(static_cast<size_t>(f.prompt_len));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int64_t>(1 + i % 64);
  return {"/proc/self/exe",
          "generate",
          "--model-path",
          model,
          "--prompt-ids",
          fmt::format("{}", fmt::join(prompt, ",")),
          "--max-new-tokens",
          "1",
          "--ignore-eos",
          "--temperature",
          "0",
          "--json",
          "--log-level",
          "off",
          "--cache-weights",
          "--plan-cache",
          cache + "/plans",
          "--dtype",
          f.dtype,
          "--isa",
          f.isa,
          "--threads",
          fmt::format("{}", f.threads)};
}

OrderedJson row_json(const char* kind, const std::vector<measurement::Start>& starts) {
  const measurement::Start median = measurement::median_of(starts);
  OrderedJson j;
  j["start"] = kind;
  j["total_s"] = median.total_s;
  j["load_s"] = median.load_s;
  j["compile_s"] = median.compile_s;
  j["capture_s"] = median.capture_s;
  j["ttft_s"] = median.ttft_s;
  j["weights_in_page_cache"] = median.weights_resident;
  j["runs"] = starts.size();
  return j;
}

Status run_startup(const StartupFlags& f) {
  ASSIGN_OR_RETURN(const std::string model, service::model_on_disk(f.model_path, f.hub));
  measurement::StartupPlan plan;
  plan.model = model;
  ASSIGN_OR_RETURN(plan.caches, cache_folder());
  plan.command = [&](const std::string& cache) { return start_command(f, model, cache); };
  plan.repeat = f.repeat;
  plan.evict = f.evict;
  ASSIGN_OR_RETURN(const measurement::Startup measured, measurement::measure_startup(plan));
  OrderedJson report;
  report["model"] = f.model_path;
  report["weights_in_page_cache_before"] = measured.resident_before;
  report["evicted"] = f.evict;
  report["rows"] = {row_json("cold", measured.cold), row_json("warm", measured.warm)};
  if (f.json) {
    fmt::print("{}\n", report.dump());
    return Status::ok();
  }
  fmt::print("{:<6} {:>9} {:>9} {:>10} {:>10} {:>9} {:>15} {:>5}\n", "start", "total s", "load s", "compile s",
             "capture s", "ttft s", "weights cached", "runs");
  for (const auto& r : report["rows"])
    fmt::print("{:<6} {:>9.3f} {:>9.3f} {:>10.3f} {:>10.3f} {:>9.3f} {:>14.0f}% {:>5}\n", r["start"].get<std::string>(),
               r["total_s"].get<double>(), r["load_s"].get<double>(), r["compile_s"].get<double>(),
               r["capture_s"].get<double>(), r["ttft_s"].get<double>(), 100 * r["weights_in_page_cache"].get<double>(),
               r["runs"].get<int64_t>());
  fmt::print("before the first start {:.0f}% of the model's files were in the page cache\n",
             100 * measured.resident_before);
  return Status::ok();
}

}  // namespace

Command add_bench_startup(CLI::App& bench) {
  auto flags = std::make_shared<StartupFlags>();
  Command c;
  c.app = bench.add_subcommand("startup", "From process start to the first token, cold and warm");
  add_text(*c.app, "-m,--model-path,--model", flags->model_path, std::string(settings::find("model_path")->help),
           "PATH");
  add_settings(*c.app, flags->hub.bindings(), "Options");
  add_integer(*c.app, "--repeat", flags->repeat, {1, 1000}, "cold and warm starts each; medians are shown");
  add_integer(*c.app, "--prompt-len", flags->prompt_len, {1, 65536}, "tokens of the prompt");
  add_choice(*c.app, "--dtype", flags->dtype, {"auto", "float32", "float16", "half", "bfloat16"}, "as in generate");
  add_integer(*c.app, "--threads", flags->threads, {0, 1024}, "CPU threads; 0: one per allowed core");
  add_text(*c.app, "--isa", flags->isa, "CPU instruction set: " + cpu::isa_choices(), "NAME");
  add_switch(*c.app, "--evict-weights", flags->evict,
             "drop the files of weights from the page cache before each start");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  c.app->footer(
      "Each start is a process that loads the model, generates one token and ends; total is its whole life. Cold: "
      "with\n"
      "empty caches of plans and packed weights, which it fills; warm: the next one, with what the cold one left. The\n"
      "caches are made for this in $REPRISE_CACHE and removed; the model stays. Unless weights are evicted, one start "
      "that\n"
      "is not counted comes first. \"weights cached\": how much of the files with weights was in the page cache.");
  c.check = [flags] {
    if (flags->model_path.empty())
      return invalid("--model-path is missing; allowed: {}", settings::find("model_path")->help);
    return Status::ok();
  };
  c.run = [flags] { return run_startup(*flags); };
  return c;
}

}  // namespace reprise::apps
