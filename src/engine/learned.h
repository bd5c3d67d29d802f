// Learned: what an engine learns while serving and keeps for its next start: step times and the histogram of row
// counts, per phase, and how many drafts came true. One small JSON file per (model, dtype, device), written atomically;
// a missing or unreadable file only means that nothing has been learned yet. Plain data.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/engine_options.h"
#include "engine/phases.h"
#include "engine/step_runner.h"

namespace reprise::engine {

struct LearnedPhase {
  struct Time {
    StepKind kind;
    int64_t rows;
    StepCosts::Entry entry;
    StepClock clock = StepClock::Host;
  };
  std::vector<Time> times;
  std::vector<std::pair<int64_t, uint64_t>> traffic;  // row count, batches
};

// Drafts by what makes them ("NGRAM") and by place among those of a step. Where there are many, older ones count for
// less and less.
class DraftRecord {
 public:
  struct Place {
    int64_t verified = 0, accepted = 0;
  };
  static constexpr size_t kMostPlaces = 64, kMostKinds = 16;
  static constexpr int64_t kMany = int64_t{1} << 20;  // at the first place; then all are halved

  // Places beyond the last, and kinds beyond the most, are left out.
  void add(std::string_view by, std::span<const int64_t> verified, std::span<const int64_t> accepted);
  const std::map<std::string, std::vector<Place>, std::less<>>& all() const { return all_; }

 private:
  std::map<std::string, std::vector<Place>, std::less<>> all_;
};

struct Learned {
  std::array<LearnedPhase, kPhaseCount> phases;
  DraftRecord drafts;
};
using Runners = std::array<std::unique_ptr<StepRunner>, kPhaseCount>;

// NotFound: nothing learned yet. Invalid: the file is not one of ours; it is replaced by the next save.
Result<Learned> load_learned(const std::string& path);
// Times by other clocks than the runners' stay as the file has them.
Status save_learned(const std::string& path, const Runners& runners, const DraftRecord& drafts);
// Gives the runners what was learned about their phases, and of the times those by their clocks.
void restore(const Learned& learned, const Runners& runners);

// Where that file lies for a model, its dtype and a device.
std::string learned_file(const EngineOptions& options, const models::ModelConfig& config, const models::ModelSpec& spec,
                         Device& device);
// Learned sizes replace the rule's as soon as there is traffic to learn from.
void use_learned_sizes(EngineOptions& options, const std::string& file);

}  // namespace reprise::engine
