// Verification: the same traffic through every graph mode, with and without passes, compared bit for bit with the
// eager, unfused run; with garbage wherever nothing may depend on it; and every staged input changed, to see that it is
// read and touches nothing else. Where the device's fused operators round less often than their parts, modes are
// compared with the eager run of the same passes, and that one with the unfused run within a bound. It opens the
// engines of one mode after the other and closes them. One thread; every rank of a launcher's world has its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "engine/fusion_bound.h"
#include "service/local_ranks.h"
#include "verification/runs.h"

namespace reprise::verification {

// What is verified. Graph modes and passes of `model` are the check's own; its pass file, sizes and faults hold for
// every mode but the answer key.
struct VerifyPlan {
  service::RunSettings model;
  bool quick = false;     // a few batches in place of all
  int64_t largest = 64;   // batches from 1 to this
  std::string case_file;  // "": traffic of the check's own; else the one step of a replay report
};

// One way to run the model. Plain words of the settings `graph`, `graph_decode`, `graph_prefill` and `passes`.
struct VerifyMode {
  const char* name;
  const char* graph;
  const char *decode, *prefill;  // null: not given
  const char* passes;
  bool live_sizes = true;
  int64_t threads = 0;      // 0: as asked
  bool only_exact = false;  // without the fusions that round less often than their parts
};

// What was compared and what was wrong.
struct VerifyTotals {
  int64_t sizes = 0, rows = 0, mismatches = 0, perturbations = 0;
  int64_t hidden = 0;  // of the perturbations: rounding hides them, in the answer key as well
  double max_abs_diff = 0;
  std::vector<std::string> wrong;  // in words

  void add(std::string what) {
    ++mismatches;
    wrong.push_back(std::move(what));
  }
};

class Verification {
 public:
  // `show`: progress on standard error.
  Verification(VerifyPlan plan, bool show) : plan_(std::move(plan)), show_(show) {}

  // All fused ops that this device runs by kernels which are not exact; then the modes.
  Status prepare();
  Status check_all();
  Status check_case();
  // A follower's part: the engines of all modes over ranks, one after the other.
  Status follow();

  const VerifyTotals& totals() const { return totals_; }
  const std::vector<VerifyMode>& modes() const { return modes_; }
  const std::optional<engine::FusionTally>& fusions() const { return fusions_; }
  const std::string& left_out() const { return runs_.left_out; }
  int64_t ranks() const { return plan_.model.tp_size; }  // of all modes but the keys
  bool ranked_keys() const { return plan_.model.reduces(); }

 private:
  // On one rank, or the front of several.
  Result<service::LocalRanks> open(const VerifyMode& mode) const;
  // The mode whose rows are the right ones for `mode`.
  const VerifyMode& key_of(const VerifyMode& mode) const;
  bool is_key(const VerifyMode& mode) const;
  // Keys are on one rank, but where sums are added over ranks: no other number of ranks has those bits.
  bool is_ranked(const VerifyMode& mode) const {
    return plan_.model.tp_size > 1 && (plan_.model.reduces() || !is_key(mode));
  }
  const std::vector<Outcome>& rows_of(const VerifyMode& key) const;

  void leave_out(const std::string& words) {
    if (runs_.left_out.find(words) == std::string::npos)
      runs_.left_out += fmt::format("{}{}", runs_.left_out.empty() ? "" : "; ", words);
  }
  Status find_keys();
  Status find_both_keys(engine::Engine& plain, engine::Engine& fused);
  Status check_mode(const VerifyMode& mode);
  Status check_run(engine::Engine& e, const VerifyMode& mode, size_t run);
  Status check_changes(engine::Engine& e, const VerifyMode& mode);
  Status judge_unchanged(const VerifyMode& mode, int64_t batch, const std::set<std::string>& unchanged);
  void check_feeds(const VerifyMode& key, const DeviceInfo& device);
  void compare_fusions(const Outcome& plain, const Outcome& fused);
  void judge_fusions();
  void step_on(const VerifyMode& mode, std::string_view what, uint64_t cost);
  template <typename Again>
  Status measure(const VerifyMode& key, const Outcome& found, const Outcome& right, const Again& again);

  VerifyPlan plan_;
  bool show_;
  std::vector<std::string> inexact_;
  std::vector<VerifyMode> modes_;
  VerifyRuns runs_;
  std::vector<Outcome> plain_, fused_;  // the keys' rows, run by run
  std::optional<engine::FusionTally> fusions_;
  // By key and batch: changes that change nothing in the key.
  std::map<std::pair<std::string_view, int64_t>, std::set<std::string>> hidden_;
  std::unique_ptr<Progress> progress_;
  VerifyTotals totals_;
};

}  // namespace reprise::verification
