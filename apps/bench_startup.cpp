// `reprise bench startup`: from process start to the first token, with empty and with filled caches. Every start is a
// process of its own.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "api/default_model.h"
#include "backends/cpu/isa.h"
#include "base/elapsed.h"
#include "base/process.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "measurement/page_cache.h"

namespace reprise::apps {

using namespace api;

namespace {

namespace fs = std::filesystem;

struct StartupFlags {
  std::string model_path{kDefaultModelName};
  std::string dtype = "auto", isa = "auto";
  HubOptions hub;
  int64_t threads = 0, prompt_len = 16, repeat = 5;
  bool evict = false, json = false;
};

// A folder that goes with its owner, next to the real caches, so that it lies on the same file system.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make() {
    ASSIGN_OR_RETURN(const std::string base, cache_folder());
    std::error_code problem;
    fs::create_directories(base, problem);
    std::string pattern = base + "/startup-XXXXXX";
    if (problem || !::mkdtemp(pattern.data()))
      return error(Code::Invalid, "no folder can be made in {}; set REPRISE_CACHE to a folder that can be written",
                   base);
    return ScratchFolder(pattern);
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct Start {
  double total_s = 0, load_s = 0, compile_s = 0, capture_s = 0, ttft_s = 0;
  double weights_resident = 0;  // share of the files it read weights from that was in the page cache
};

double median(const std::vector<Start>& starts, double Start::*what) {
  std::vector<double> v;
  for (const Start& s : starts) v.push_back(s.*what);
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

Result<Start> start_once(const StartupFlags& f, const std::string& model, const std::string& cache,
                         const std::string& weights) {
  if (f.evict) measurement::evict_from_page_cache(weights);
  Start s;
  s.weights_resident = measurement::page_cache_share(weights);
  std::vector<int64_t> prompt(static_cast<size_t>(f.prompt_len));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int64_t>(1 + i % 64);
  const std::vector<std::string> command{"/proc/self/exe",
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
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const ProcessResult done, run_process(command, {{"REPRISE_CACHE", cache}}));
  s.total_s = seconds_since(begin);
  if (done.exit_code != 0)
    return error(Code::Invalid, "generate ended with {}: {}", done.exit_code,
                 done.output.substr(0, done.output.find('\n')));
  ASSIGN_OR_RETURN(const Json j, parse_json(done.output, "output of generate"));
  if (!j.contains("timing")) return error(Code::Internal, "generate said nothing of times: {}", done.output);
  const Json& timing = j["timing"];
  for (const auto& [key, value] : {std::pair{"load_s", &Start::load_s}, std::pair{"compile_s", &Start::compile_s},
                                   std::pair{"capture_s", &Start::capture_s}, std::pair{"ttft_s", &Start::ttft_s}})
    s.*value = timing.value(key, 0.0);
  return s;
}

OrderedJson row_json(const char* kind, const std::vector<Start>& starts) {
  OrderedJson j;
  j["start"] = kind;
  j["total_s"] = median(starts, &Start::total_s);
  j["load_s"] = median(starts, &Start::load_s);
  j["compile_s"] = median(starts, &Start::compile_s);
  j["capture_s"] = median(starts, &Start::capture_s);
  j["ttft_s"] = median(starts, &Start::ttft_s);
  j["weights_in_page_cache"] = median(starts, &Start::weights_resident);
  j["runs"] = starts.size();
  return j;
}

Status run_startup(const StartupFlags& f) {
  ASSIGN_OR_RETURN(const std::string model, service::model_on_disk(f.model_path, f.hub));
  const double found = measurement::page_cache_share(model);
  std::vector<Start> cold, warm;
  {
    Progress bar("startup", static_cast<uint64_t>(2 * f.repeat + 1));
    for (int64_t r = 0; r <= f.repeat; ++r) {
      ASSIGN_OR_RETURN(const ScratchFolder cache, ScratchFolder::make());
      ASSIGN_OR_RETURN(const Start first, start_once(f, model, cache.path(), model));
      bar.advance(1, "cold");
      if (r == 0 && !f.evict) continue;  // brings the program and the checkpoint into the page cache
      cold.push_back(first);
      // Where nothing was packed into the cache, a warm start reads the checkpoint as well.
      const std::string packed = cache.path() + "/weights";
      ASSIGN_OR_RETURN(const Start second, start_once(f, model, cache.path(), fs::exists(packed) ? packed : model));
      warm.push_back(second);
      bar.advance(1, "warm");
    }
  }
  OrderedJson report;
  report["model"] = f.model_path;
  report["weights_in_page_cache_before"] = found;
  report["evicted"] = f.evict;
  report["rows"] = {row_json("cold", cold), row_json("warm", warm)};
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
  fmt::print("before the first start {:.0f}% of the model's files were in the page cache\n", 100 * found);
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
