// measure_startup(): from process start to the first token, with empty and with filled caches. Every start is a process
// of its own that loads a model, generates one token and ends. Cold: with empty caches of plans and packed weights,
// which it fills; warm: the next one, with what the cold one left. Blocks the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/status.h"

namespace reprise::measurement {

struct StartupPlan {
  std::string model;   // the file or folder with its weights
  std::string caches;  // the folder in which the caches are made; they go with the measurement
  // The command of one start, which reports its times as `reprise generate` does in JSON. `cache` is its
  // $REPRISE_CACHE, which holds "weights" where it packed any.
  std::function<std::vector<std::string>(const std::string& cache)> command;
  int64_t repeat = 5;  // cold and warm starts each
  bool evict = false;  // files of weights leave the page cache before each start; else one that does not count is first
  RunProgram run = run_process;
};

struct Start {
  double total_s = 0, load_s = 0, compile_s = 0, capture_s = 0, ttft_s = 0;  // total: the life of the process
  double weights_resident = 0;  // share of the files it read weights from that was in the page cache
};

struct Startup {
  double resident_before = 0;  // of the model's files, before the first start
  std::vector<Start> cold, warm;
};

Result<Startup> measure_startup(const StartupPlan& plan);

// Each figure's median on its own; zeros for none.
Start median_of(const std::vector<Start>& starts);

}  // namespace reprise::measurement
