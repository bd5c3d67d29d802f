#include "measurement/startup.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/elapsed.h"
#include "base/json.h"
#include "base/progress.h"
#include "measurement/page_cache.h"

namespace reprise::measurement {
namespace {

namespace fs = std::filesystem;

// A folder that goes with its owner, next to the real caches, so that it lies on the same file system.
class ScratchFolder {
 public:
  static Result<ScratchFolder> make(const std::string& base) {
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

constexpr std::pair<const char*, double Start::*> kReported[] = {{"load_s", &Start::load_s},
                                                                 {"compile_s", &Start::compile_s},
                                                                 {"capture_s", &Start::capture_s},
                                                                 {"ttft_s", &Start::ttft_s}};

Result<Start> start_once(const StartupPlan& plan, const std::string& cache, const std::string& weights) {
  if (plan.evict) evict_from_page_cache(weights);
  Start s;
  s.weights_resident = page_cache_share(weights);
  const std::vector<std::string> command = plan.command(cache);
  const auto begin = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const ProcessResult done, plan.run(command, {{"REPRISE_CACHE", cache}}, {}));
  s.total_s = seconds_since(begin);
  if (done.exit_code != 0)
    return error(Code::Invalid, "generate ended with {}: {}", done.exit_code,
                 done.output.substr(0, done.output.find('\n')));
  ASSIGN_OR_RETURN(const Json j, parse_json(done.output, "output of generate"));
  if (!j.contains("timing")) return error(Code::Internal, "generate said nothing of times: {}", done.output);
  for (const auto& [key, value] : kReported) s.*value = j["timing"].value(key, 0.0);
  return s;
}

}  // namespace

Result<Startup> measure_startup(const StartupPlan& plan) {
  Startup out;
  out.resident_before = page_cache_share(plan.model);
  Progress bar("startup", static_cast<uint64_t>(2 * plan.repeat + 1));
  for (int64_t r = 0; r <= plan.repeat; ++r) {
    ASSIGN_OR_RETURN(const ScratchFolder cache, ScratchFolder::make(plan.caches));
    ASSIGN_OR_RETURN(const Start first, start_once(plan, cache.path(), plan.model));
    bar.advance(1, "cold");
    if (r == 0 && !plan.evict) continue;  // brings the program and the checkpoint into the page cache
    out.cold.push_back(first);
    // Where nothing was packed into the cache, a warm start reads the checkpoint as well.
    const std::string packed = cache.path() + "/weights";
    ASSIGN_OR_RETURN(const Start second, start_once(plan, cache.path(), fs::exists(packed) ? packed : plan.model));
    out.warm.push_back(second);
    bar.advance(1, "warm");
  }
  return out;
}

Start median_of(const std::vector<Start>& starts) {
  Start out;
  if (starts.empty()) return out;
  for (double Start::*const what : {&Start::total_s, &Start::load_s, &Start::compile_s, &Start::capture_s,
                                    &Start::ttft_s, &Start::weights_resident}) {
    std::vector<double> v;
    for (const Start& s : starts) v.push_back(s.*what);
    std::sort(v.begin(), v.end());
    out.*what = v[v.size() / 2];
  }
  return out;
}

}  // namespace reprise::measurement
