// PlanCache: compiled programs on disk, so that the second start need not compile.
//
// One file per program, named by its key (plan_key.h). A miss is always safe: where a file is missing, cut short,
// changed, another program's or for kernels that are not there, the caller compiles and the file is replaced,
// with the reason counted and logged. Files are written whole under another name first, so readers and writers of any
// number of processes do not disturb each other, and the folder may be deleted at any time. When the folder cannot be
// written there is one notice and everything goes on. One thread at a time; several caches on one folder are fine.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "compile/binding.h"
#include "compile/memory_plan.h"
#include "compile/plan_file.h"
#include "compile/plan_key.h"

namespace reprise {

// A graph after its passes, matched to a device and planned: what CompiledModel is made of.
struct Program {
  Graph graph{""};
  PipelineReport report;
  KernelSelection selection;
  MemoryPlan plan;
};

class PlanCache {
 public:
  struct Counters {
    uint64_t hits = 0;
    uint64_t misses = 0;  // no file
    uint64_t stored = 0;
    std::map<std::string, uint64_t> rejected;  // files that were of no use, by reason
  };

  // Files beyond this many bytes go, the longest unused first.
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;

  explicit PlanCache(std::string folder) : folder_(std::move(folder)) {}  // "": no cache

  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  const Counters& counters() const { return counters_; }
  std::string path(const PlanKey& key) const;

  std::optional<Program> load(const PlanKey& key, const Platform& platform);
  void store(const PlanKey& key, const Program& program);

  // One line for the start: how many programs came from here, and why others did not.
  std::string summary() const;

 private:
  Result<PlanFile> read(const PlanKey& key);
  void write(const PlanKey& key, const PlanFile& file);
  void reject(const PlanKey& key, const Status& why);
  void prune() const;

  std::string folder_;
  Counters counters_;
  bool complained_ = false;
};

}  // namespace reprise
