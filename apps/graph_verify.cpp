// `reprise graph verify`: the same traffic through every graph mode, with and without passes, compared bit for bit with
// the eager, unfused run; with garbage wherever nothing may depend on it; and every staged input changed, to see that
// it is read and touches nothing else. Where the device's fused operators round less often than their parts, modes are
// compared with the eager run of the same passes, and that one with the unfused run within a bound.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "api/device_choice.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "command.h"
#include "common/flags.h"
#include "common/local_ranks.h"
#include "common/model_flags.h"
#include "common/terminal.h"
#include "engine/fusion_bound.h"
#include "passes/extension.h"
#include "settings/setting.h"
#include "verify/runs.h"

namespace reprise::apps {

using namespace api;

namespace {

struct VerifyFlags {
  ModelFlags model;
  bool json = false;
  bool quick = false;
  int64_t largest = 64;
  std::string case_file;
};

struct Mode {
  const char* name;
  const char* graph;
  const char *decode, *prefill;  // null: not given
  const char* passes;
  bool live_sizes = true;
  int64_t threads = 0;      // 0: as asked
  bool only_exact = false;  // without the fusions that round less often than their parts
};
// The first is the answer key; where fusions are not exact, the second that of all modes with all passes.
constexpr Mode kModes[] = {
    {"eager, no passes", "off", nullptr, nullptr, "none"},
    {"eager, all passes", "off", nullptr, nullptr, "all"},
    {"whole decode, piecewise prefill, no passes", "auto", "whole", "piecewise", "none"},
    {"whole decode, piecewise prefill, all passes", "auto", "whole", "piecewise", "all"},
    {"piecewise decode, whole prefill, all passes", "auto", "piecewise", "whole", "all"},
    {"whole decode, piecewise prefill, sizes frozen at capture", "auto", "whole", "piecewise", "all", false},
    {"piecewise decode, whole prefill, sizes frozen at capture", "auto", "piecewise", "whole", "all", false},
    {"whole decode, piecewise prefill, one thread", "auto", "whole", "piecewise", "all", true, 1}};
constexpr const Mode &kKey = kModes[0], &kFusedKey = kModes[1];
constexpr Mode kExactPasses{"eager, exact passes", "off", nullptr, nullptr, "all", true, 0, true};

bool same(const Mode& a, const Mode& b) { return std::string_view(a.name) == b.name; }

struct Totals {
  int64_t sizes = 0, rows = 0, mismatches = 0, perturbations = 0;
  int64_t hidden = 0;  // of the perturbations: rounding hides them, in the answer key as well
  double max_abs_diff = 0;
  std::vector<std::string> wrong;  // in words

  void add(std::string what) {
    ++mismatches;
    wrong.push_back(std::move(what));
  }
};

// What all runs of the command share, and what they found.
class Verification {
 public:
  // `show`: progress on standard error.
  Verification(const VerifyFlags& f, bool show) : f_(f), show_(show) {}

  // All fused ops that this device runs by kernels which are not exact; then the modes.
  Status prepare();
  Status check_all();
  Status check_case();
  // A follower's part: the engines of all modes over ranks, one after the other.
  Status follow();

  const Totals& totals() const { return totals_; }
  const std::vector<Mode>& modes() const { return modes_; }
  const std::optional<engine::FusionTally>& fusions() const { return fusions_; }
  const std::string& left_out() const { return runs_.left_out; }
  int64_t ranks() const { return f_.model.tp_size; }  // of all modes but the keys
  bool ranked_keys() const { return f_.model.reduces(); }

 private:
  // On one rank, or the front of several.
  Result<LocalRanks> open(const Mode& mode) const;
  // The mode whose rows are the right ones for `mode`.
  const Mode& key_of(const Mode& mode) const {
    return !inexact_.empty() && !mode.only_exact && std::string_view(mode.passes) == "all" ? kFusedKey : kKey;
  }
  bool is_key(const Mode& mode) const { return same(key_of(mode), mode); }
  // Keys are on one rank, but where sums are added over ranks: no other number of ranks has those bits.
  bool is_ranked(const Mode& mode) const { return f_.model.tp_size > 1 && (f_.model.reduces() || !is_key(mode)); }
  const std::vector<Outcome>& rows_of(const Mode& key) const { return same(key, kKey) ? plain_ : fused_; }

  void leave_out(const std::string& words) {
    if (runs_.left_out.find(words) == std::string::npos)
      runs_.left_out += fmt::format("{}{}", runs_.left_out.empty() ? "" : "; ", words);
  }
  Status find_keys();
  Status find_both_keys(engine::Engine& plain, engine::Engine& fused);
  Status check_mode(const Mode& mode);
  Status check_run(engine::Engine& e, const Mode& mode, size_t run);
  Status check_changes(engine::Engine& e, const Mode& mode);
  Status judge_unchanged(const Mode& mode, int64_t batch, const std::set<std::string>& unchanged);
  void check_feeds(const Mode& key, const DeviceInfo& device);
  void compare_fusions(const Outcome& plain, const Outcome& fused);
  void judge_fusions();
  void step_on(const Mode& mode, std::string_view what, uint64_t cost);
  template <typename Again>
  Status measure(const Mode& key, const Outcome& found, const Outcome& right, const Again& again);

  const VerifyFlags& f_;
  bool show_;
  std::vector<std::string> inexact_;
  std::vector<Mode> modes_;
  VerifyRuns runs_;
  std::vector<Outcome> plain_, fused_;  // the keys' rows, run by run
  std::optional<engine::FusionTally> fusions_;
  // By key and batch: changes that change nothing in the key.
  std::map<std::pair<std::string_view, int64_t>, std::set<std::string>> hidden_;
  std::unique_ptr<Progress> progress_;
  Totals totals_;
};

Result<LocalRanks> Verification::open(const Mode& mode) const {
  ModelFlags flags = f_.model;
  flags.graph.graph = mode.graph;
  flags.graph.decode = mode.decode ? std::optional<std::string>(mode.decode) : std::nullopt;
  flags.graph.prefill = mode.prefill ? std::optional<std::string>(mode.prefill) : std::nullopt;
  flags.graph.passes = mode.passes;
  if (same(mode, kKey)) flags.graph.faults.clear();
  if (mode.only_exact) {
    std::string names = flags.graph.disable_pass.value_or("");
    for (const std::string& op : inexact_) names += (names.empty() ? "" : ",") + op;
    flags.graph.disable_pass = names;
  }
  // Only sizes and limits of the aliases count; modes are the check's own.
  const GraphAliases& said = f_.model.graph.aliases;
  flags.graph.aliases = {.cuda_graph_bs = said.cuda_graph_bs,
                         .cuda_graph_max_bs = said.cuda_graph_max_bs,
                         .torch_compile_max_bs = said.torch_compile_max_bs,
                         .piecewise_tokens = said.piecewise_tokens,
                         .piecewise_max_tokens = said.piecewise_max_tokens};
  flags.live_sizes = mode.live_sizes;
  flags.graph.learn = false;
  flags.bars = show_;
  if (mode.threads) flags.threads = mode.threads;
  if (!is_ranked(mode)) flags.tp_size = 1, flags.member = nullptr;
  if (!flags.member) return open_local_ranks(std::move(flags));
  LocalRanks opened;
  ASSIGN_OR_RETURN(opened.alone, open_engine(flags));  // of a launcher's world
  return opened;
}

Status Verification::prepare() {
  ASSIGN_OR_RETURN(const DeviceOptions options, device_options(f_.model.device, f_.model.ascend_runtime, ::getenv));
  ASSIGN_OR_RETURN(Platform platform, make_platform(options));
  for (const std::string& file : f_.model.extensions) RETURN_IF_ERROR(load_extension(file, platform));
  const DeviceInfo& device = platform.device->info();
  nn::FusedOps fused = nn::fused_ops();
  for (const auto& e : platform.extensions)
    for (const nn::FusedOp& op : e->ops()) fused.add(op);
  for (const std::string& op : engine::inexact_ops(*platform.kernels, device.kind))
    if (fused.find(op)) inexact_.push_back(op);
  for (const Mode& m : kModes) {
    // A device that freezes sizes does so in every mode, and has no threads.
    if ((!device.live_sizes && !m.live_sizes) || (device.kind != DeviceKind::Cpu && m.threads)) continue;
    modes_.push_back(m);
  }
  if (!inexact_.empty()) modes_.insert(modes_.begin() + 2, kExactPasses);
  return Status::ok();
}

void Verification::step_on(const Mode& mode, std::string_view what, uint64_t cost) {
  size_t number = 1;
  while (number < modes_.size() && !same(modes_[number - 1], mode)) ++number;
  progress_->advance(cost, fmt::format("mode {} of {} ({}), {}", number, modes_.size(), mode.name, what));
}

// How far the kept rows are from the answer key's, for which the key runs once more.
template <typename Again>
Status Verification::measure(const Mode& key, const Outcome& found, const Outcome& right, const Again& again) {
  ASSIGN_OR_RETURN(auto e, open(key));
  Outcome others = right;
  for (const size_t r : found.differing) others.rows[r] = ~others.rows[r];
  ASSIGN_OR_RETURN(const Outcome same_rows, again(*e, others));
  for (size_t i = 0; i < std::min(same_rows.logits.size(), found.logits.size()); ++i) {
    const double gap = std::fabs(static_cast<double>(same_rows.logits[i]) - found.logits[i]);
    if (!(gap <= totals_.max_abs_diff)) totals_.max_abs_diff = gap;
  }
  return Status::ok();
}

engine::FusionBound bound_of(const engine::Engine& e) {
  std::vector<const CompiledModel*> plans;
  for (const engine::PhaseSpec& phase : e.phases())
    for (const CompiledModel* m : e.runner(phase.name)->models()) plans.push_back(m);
  return engine::fusion_bound(plans);
}

// What an engine says about itself after its traffic: replays that failed, sizes that could not be captured.
void add_remarks(engine::Engine& e, const Mode& mode, Totals& totals) {
  for (const engine::PhaseSpec& phase : e.phases()) {
    const engine::StepRunner* runner = e.runner(phase.name);
    for (const auto& [size, reason] : runner->quarantined())
      totals.add(fmt::format("{}: {}", mode.name, settings::as_flags(reason)));
    for (const auto& d : runner->dropped())
      totals.add(fmt::format("{}: size {}: {}", mode.name, d.size, settings::as_flags(d.reason)));
  }
}

void Verification::compare_fusions(const Outcome& plain, const Outcome& fused) {
  const size_t rows = plain.rows.size(), width = plain.logits.size() / std::max<size_t>(1, rows);
  for (size_t r = 0; r < rows; ++r)
    fusions_->add(
        engine::row_distance({fused.logits.data() + r * width, width}, {plain.logits.data() + r * width, width}));
}

void Verification::judge_fusions() {
  if (fusions_ && !fusions_->holds()) totals_.add(fmt::format("{}: {}", kFusedKey.name, fusions_->words()));
}

Status Verification::find_keys() {
  ASSIGN_OR_RETURN(auto plain, open(kKey));
  runs_ = verify_runs(*plain, f_.largest, f_.quick);
  progress_ = std::make_unique<Progress>("verifying", runs_.cost() * modes_.size(), show_);
  if (!inexact_.empty()) {
    ASSIGN_OR_RETURN(auto fused, open(kFusedKey));
    RETURN_IF_ERROR(find_both_keys(*plain, *fused));
  } else {
    for (const VerifyRun& run : runs_.runs) {
      auto outcome = run_traffic(*plain, run.traffic);
      if (!outcome.is_ok()) return outcome.status().at(fmt::format("{}, {}", kKey.name, run.name));
      plain_.push_back(std::move(*outcome));
      step_on(kKey, run.name, run.cost());
    }
    for (const int64_t batch : runs_.changed_batches) step_on(kKey, "nothing changed", cost_of_changes(batch));
  }
  check_feeds(kKey, plain->device().info());
  if (!inexact_.empty()) check_feeds(kFusedKey, plain->device().info());
  return Status::ok();
}

// Side by side, as all logits of all runs are too many to keep.
Status Verification::find_both_keys(engine::Engine& plain, engine::Engine& fused) {
  fusions_.emplace(bound_of(fused));
  fused.set_step_hook(poison());
  for (const VerifyRun& run : runs_.runs) {
    TrafficOptions traffic = run.traffic;
    traffic.keep_all = true;
    Outcome both[2];
    for (const bool second : {false, true}) {
      const Mode& mode = second ? kFusedKey : kKey;
      auto outcome = run_traffic(second ? fused : plain, traffic);
      if (!outcome.is_ok()) return outcome.status().at(fmt::format("{}, {}", mode.name, run.name));
      both[second] = std::move(*outcome);
      step_on(mode, run.name, run.cost());
    }
    compare_fusions(both[0], both[1]);
    for (Outcome& o : both) o.logits.clear();
    plain_.push_back(std::move(both[0]));
    fused_.push_back(std::move(both[1]));
  }
  judge_fusions();
  ++totals_.sizes;
  return check_changes(fused, kFusedKey);
}

Status Verification::check_run(engine::Engine& e, const Mode& mode, size_t index) {
  const VerifyRun& run = runs_.runs[index];
  if (run.traffic.feed == Feed::Drafted && e.max_verify_rows() == 0) {
    leave_out(fmt::format("steps with drafts, {}: {}", mode.name, e.verify_refusal()));
    step_on(mode, run.name, run.cost());
    return Status::ok();
  }
  const Mode& key = key_of(mode);
  const Outcome& right = rows_of(key)[index];
  auto outcome = run_traffic(e, run.traffic, &right);
  if (!outcome.is_ok()) return outcome.status().at(fmt::format("{}, {}", mode.name, run.name));
  step_on(mode, run.name, run.cost());
  ++totals_.sizes;
  totals_.rows += static_cast<int64_t>(outcome->rows.size());
  if (outcome->rows == right.rows) return Status::ok();
  const bool first = totals_.mismatches == 0;
  totals_.add(fmt::format("{}, {}: {} of {} rows", mode.name, run.name, outcome->differing.size(), right.rows.size()));
  if (!first || run.traffic.greedy) return Status::ok();
  return measure(key, *outcome, right, [&](engine::Engine& again, const Outcome& others) {
    return run_traffic(again, run.traffic, &others);
  });
}

// Small numbers may be lost in a sum of large ones. The mode's key has the same arithmetic and, being eager, reads
// every input of every step: a change that is lost in the mode is lost in the key as well, or the mode read an old
// value. What a key itself loses has nothing to be held against.
Status Verification::judge_unchanged(const Mode& mode, int64_t batch, const std::set<std::string>& unchanged) {
  const Mode& key = key_of(mode);
  const std::pair<std::string_view, int64_t> at{key.name, batch};
  if (is_key(mode)) hidden_[at] = unchanged;
  if (!hidden_.contains(at)) {
    ASSIGN_OR_RETURN(auto e, open(key));
    ASSIGN_OR_RETURN(PerturbResult changed, perturb_inputs(*e, batch));
    hidden_[at] = std::move(changed.unchanged);
  }
  for (const std::string& what : unchanged) {
    if (hidden_[at].contains(what))
      ++totals_.hidden;
    else
      totals_.add(fmt::format("{}, batch {}: {} changed nothing: an old value was read", mode.name, batch, what));
  }
  return Status::ok();
}

Status Verification::check_changes(engine::Engine& e, const Mode& mode) {
  e.set_step_hook({});
  for (const int64_t batch : runs_.changed_batches) {
    auto changed = perturb_inputs(e, batch);
    if (!changed.is_ok()) return changed.status().at(fmt::format("{}, changed inputs, batch {}", mode.name, batch));
    totals_.perturbations += changed->checked;
    for (const std::string& w : changed->wrong) totals_.add(fmt::format("{}, batch {}: {}", mode.name, batch, w));
    if (!changed->unchanged.empty()) RETURN_IF_ERROR(judge_unchanged(mode, batch, changed->unchanged));
    step_on(mode, "changed inputs", cost_of_changes(batch));
  }
  add_remarks(e, mode, totals_);
  return Status::ok();
}

Status Verification::check_mode(const Mode& mode) {
  ASSIGN_OR_RETURN(auto e, open(mode));
  e->set_step_hook(poison());
  for (size_t i = 0; i < runs_.runs.size(); ++i) RETURN_IF_ERROR(check_run(*e, mode, i));
  if (!is_ranked(mode)) return check_changes(*e, mode);
  // Changed inputs lead to pages that the check has filled on the front alone.
  for (const int64_t batch : runs_.changed_batches) step_on(mode, "nothing changed", cost_of_changes(batch));
  add_remarks(*e, mode, totals_);
  return Status::ok();
}

// Fed otherwise, the rows must be those of the batch: the key's own, too. But where several rows of a sequence are
// attended by another kernel than one, nothing says so of drafts.
void Verification::check_feeds(const Mode& key, const DeviceInfo& device) {
  const std::vector<Outcome>& rows = rows_of(key);
  for (size_t i = 0; i < runs_.runs.size(); ++i) {
    if (runs_.runs[i].traffic.feed == Feed::Together) continue;
    if (runs_.runs[i].traffic.feed == Feed::Drafted && !device.row_invariant) {
      leave_out("rows of drafts against those of plain steps: one token and several are attended by two kernels");
      continue;
    }
    ++totals_.sizes;
    if (rows[runs_.together(i)].rows != rows[i].rows)
      totals_.add(fmt::format("{}, {}: not the rows of the batch together", key.name, runs_.runs[i].name));
  }
}

Status Verification::check_all() {
  RETURN_IF_ERROR(find_keys());
  for (const Mode& mode : modes_)
    if (!is_key(mode)) RETURN_IF_ERROR(check_mode(mode));
  return Status::ok();
}

Status Verification::check_case() {
  const std::string& source = f_.case_file;
  ASSIGN_OR_RETURN(const std::string text, read_file(source, size_t{256} << 20));
  ASSIGN_OR_RETURN(const engine::ReplayCase c, engine::parse_case(text, source));
  progress_ = std::make_unique<Progress>("verifying", modes_.size(), show_);
  for (const Mode& mode : modes_) {
    ASSIGN_OR_RETURN(auto e, open(mode));
    const Mode& key = key_of(mode);
    const bool keep_all = is_key(mode) && !inexact_.empty();
    auto outcome = run_case(*e, c, source, is_key(mode) ? nullptr : &rows_of(key).front(), keep_all);
    if (!outcome.is_ok()) return outcome.status().at(mode.name);
    step_on(mode, source, 1);
    if (same(mode, kFusedKey) && is_key(mode)) {
      fusions_.emplace(bound_of(*e));
      compare_fusions(plain_.front(), *outcome);
      judge_fusions();
      ++totals_.sizes;
    }
    if (is_key(mode)) {
      (same(mode, kKey) ? plain_ : fused_).push_back(std::move(*outcome));
      continue;
    }
    const Outcome& right = rows_of(key).front();
    ++totals_.sizes;
    totals_.rows += static_cast<int64_t>(outcome->rows.size());
    if (outcome->rows == right.rows) continue;
    const bool first = totals_.mismatches == 0;
    totals_.add(fmt::format("{}: {} of {} rows", mode.name, outcome->differing.size(), right.rows.size()));
    if (!first) continue;
    RETURN_IF_ERROR(measure(key, *outcome, right, [&](engine::Engine& again, const Outcome& others) {
      return run_case(again, c, source, &others);
    }));
  }
  return Status::ok();
}

Status Verification::follow() {
  RETURN_IF_ERROR(prepare());
  for (const Mode& mode : modes_) {
    if (!is_ranked(mode)) continue;
    ASSIGN_OR_RETURN(auto e, open(mode));
    RETURN_IF_ERROR(e->follow());
  }
  return Status::ok();
}

OrderedJson json_of(const Verification& v) {
  const Totals& totals = v.totals();
  OrderedJson j;
  j["modes"] = OrderedJson::array();
  for (const Mode& m : v.modes()) j["modes"].push_back(m.name);
  j["sizes_checked"] = totals.sizes;
  j["tokens_checked"] = totals.rows;
  j["inputs_changed"] = totals.perturbations;
  j["hidden_by_rounding"] = totals.hidden;
  if (v.ranks() > 1) j["ranks"] = v.ranks();
  j["mismatches"] = totals.mismatches;
  j["max_abs_diff"] = totals.max_abs_diff;
  if (const auto& fusions = v.fusions())
    j["fusions"] = {{"inexact", fusions->bound().ops},
                    {"bound", fusions->bound().relative},
                    {"rows", fusions->rows()},
                    {"outside", fusions->outside()},
                    {"largest", fusions->largest()}};
  if (!v.left_out().empty()) j["left_out"] = v.left_out();
  j["what"] = totals.wrong;
  return j;
}

void print_text(const Verification& v) {
  const Totals& totals = v.totals();
  for (size_t i = 0; i < std::min<size_t>(totals.wrong.size(), 10); ++i)
    fmt::print("{} {}\n", coloured(Colour::Red, "differs", stdout), totals.wrong[i]);
  if (const auto& fusions = v.fusions())
    fmt::print(
        "fused against unfused (not exact: {}): {} rows, the farthest {:.3g} of its root mean square, bound {:.3g}\n",
        fmt::join(fusions->bound().ops, ", "), fusions->rows(), fusions->largest(), fusions->bound().relative);
  if (!v.left_out().empty()) fmt::print("left out: {}\n", v.left_out());
  if (v.ranks() > 1)
    fmt::print("over {} ranks, against {} run eagerly\n", v.ranks(), v.ranked_keys() ? "themselves" : "one rank");
  const std::string hidden =
      totals.hidden ? fmt::format(" ({} hidden by rounding, in the answer key as well)", totals.hidden) : "";
  fmt::print("{} modes, {} runs, {} rows of logits, {} changed inputs{}: {} mismatches\n", v.modes().size(),
             totals.sizes, totals.rows, totals.perturbations, hidden, totals.mismatches);
}

Status run_verify(const VerifyFlags& f) {
  const log::Level level = log::level();
  // Eight engines have little new to say, except to `./dev bisect`, which asks for the last change made.
  if (level == log::Level::Info && !std::getenv("REPRISE_PASS_BISECT_LIMIT")) log::set_level(log::Level::Warning);
  Verification v(f, level <= log::Level::Info);
  Status done = v.prepare();
  if (done.is_ok()) done = f.case_file.empty() ? v.check_all() : v.check_case();
  log::set_level(level);
  RETURN_IF_ERROR(done);
  if (f.json)
    fmt::print("{}\n", json_of(v).dump());
  else
    print_text(v);
  const Totals& totals = v.totals();
  if (totals.mismatches == 0) return Status::ok();
  return error(Code::Internal, "{} checks failed, the first: {}", totals.mismatches, totals.wrong.front());
}

// A case with drafts is run by steps with drafts, as many of a sequence as it has, unless the flags say otherwise. What
// is wrong with the file is told when it is run.
void take_drafts_of_case(VerifyFlags& f) {
  SpeculationSettings& speculation = f.model.speculation;
  if (f.case_file.empty() || speculation.algorithm != "none" || speculation.config) return;
  const auto text = read_file(f.case_file, size_t{256} << 20);
  if (!text.is_ok()) return;
  const auto c = engine::parse_case(*text, f.case_file);
  if (!c.is_ok() || c->most_drafts() == 0 || c->most_drafts() >= spec::SpecOptions::kMostDraftTokens) return;
  speculation.algorithm = spec::algorithm_name(spec::Algorithm::Ngram);
  speculation.draft_tokens = c->most_drafts() + 1;
}

}  // namespace

Command add_graph_verify(CLI::App& graph) {
  auto flags = std::make_shared<VerifyFlags>();
  Command c;
  c.app = graph.add_subcommand("verify", "Every graph mode against the eager, unfused run, bit for bit");
  flags->model.add_to(*c.app);
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  add_switch(*c.app, "--quick", flags->quick,
             "a few batches instead of all: every mode, both phases, padding, chunks and borders of pages");
  add_integer(*c.app, "--largest", flags->largest, {1, 4096}, "batches from 1 to this");
  add_text(*c.app, "--case", flags->case_file, "only the step of this replay report (--verify-replay writes them)",
           "FILE");
  c.app->footer(
      "Exit code 1 on any difference. --graph* and --passes are set by the check itself; --pass-file, sizes and "
      "--inject-fault hold for every mode but the answer key.");
  c.check = [flags]() -> Status {
    if (flags->quick && !flags->case_file.empty())
      return invalid("--quick chooses among batches; --case runs one step");
    take_drafts_of_case(*flags);
    return flags->model.check();
  };
  c.over_ranks = [flags] { return &flags->model; };
  c.as_threads = true;
  c.follow = [flags] { return Verification(*flags, false).follow(); };
  c.run = [flags] { return run_verify(*flags); };
  return c;
}

}  // namespace reprise::apps
