#include "verification/verification.h"

#include <cmath>
#include <cstdlib>

#include "api/device_choice.h"
#include "base/file.h"
#include "passes/extension.h"
#include "settings/setting.h"

namespace reprise::verification {
namespace {

// The first is the answer key; where fusions are not exact, the second that of all modes with all passes.
constexpr VerifyMode kModes[] = {
    {"eager, no passes", "off", nullptr, nullptr, "none"},
    {"eager, all passes", "off", nullptr, nullptr, "all"},
    {"whole decode, piecewise prefill, no passes", "auto", "whole", "piecewise", "none"},
    {"whole decode, piecewise prefill, all passes", "auto", "whole", "piecewise", "all"},
    {"piecewise decode, whole prefill, all passes", "auto", "piecewise", "whole", "all"},
    {"whole decode, piecewise prefill, sizes frozen at capture", "auto", "whole", "piecewise", "all", false},
    {"piecewise decode, whole prefill, sizes frozen at capture", "auto", "piecewise", "whole", "all", false},
    {"whole decode, piecewise prefill, one thread", "auto", "whole", "piecewise", "all", true, 1}};
constexpr const VerifyMode &kKey = kModes[0], &kFusedKey = kModes[1];
constexpr VerifyMode kExactPasses{"eager, exact passes", "off", nullptr, nullptr, "all", true, 0, true};

bool same(const VerifyMode& a, const VerifyMode& b) { return std::string_view(a.name) == b.name; }

engine::FusionBound bound_of(const engine::Engine& e) {
  std::vector<const CompiledModel*> plans;
  for (const engine::PhaseSpec& phase : e.phases())
    for (const CompiledModel* m : e.runner(phase.name)->models()) plans.push_back(m);
  return engine::fusion_bound(plans);
}

// What an engine says about itself after its traffic: replays that failed, sizes that could not be captured.
void add_remarks(engine::Engine& e, const VerifyMode& mode, VerifyTotals& totals) {
  for (const engine::PhaseSpec& phase : e.phases()) {
    const engine::StepRunner* runner = e.runner(phase.name);
    for (const auto& [size, reason] : runner->quarantined())
      totals.add(fmt::format("{}: {}", mode.name, settings::as_flags(reason)));
    for (const auto& d : runner->dropped())
      totals.add(fmt::format("{}: size {}: {}", mode.name, d.size, settings::as_flags(d.reason)));
  }
}

}  // namespace

const VerifyMode& Verification::key_of(const VerifyMode& mode) const {
  return !inexact_.empty() && !mode.only_exact && std::string_view(mode.passes) == "all" ? kFusedKey : kKey;
}

bool Verification::is_key(const VerifyMode& mode) const { return same(key_of(mode), mode); }

const std::vector<Outcome>& Verification::rows_of(const VerifyMode& key) const {
  return same(key, kKey) ? plain_ : fused_;
}

Result<service::LocalRanks> Verification::open(const VerifyMode& mode) const {
  service::RunSettings settings = plan_.model;
  settings.graph.graph = mode.graph;
  settings.graph.decode = mode.decode ? std::optional<std::string>(mode.decode) : std::nullopt;
  settings.graph.prefill = mode.prefill ? std::optional<std::string>(mode.prefill) : std::nullopt;
  settings.graph.passes = mode.passes;
  if (same(mode, kKey)) settings.graph.faults.clear();
  if (mode.only_exact) {
    std::string names = settings.graph.disable_pass.value_or("");
    for (const std::string& op : inexact_) names += (names.empty() ? "" : ",") + op;
    settings.graph.disable_pass = names;
  }
  // Only sizes and limits of the aliases count; modes are the check's own.
  const api::GraphAliases& said = plan_.model.graph.aliases;
  settings.graph.aliases = {.cuda_graph_bs = said.cuda_graph_bs,
                            .cuda_graph_max_bs = said.cuda_graph_max_bs,
                            .torch_compile_max_bs = said.torch_compile_max_bs,
                            .piecewise_tokens = said.piecewise_tokens,
                            .piecewise_max_tokens = said.piecewise_max_tokens};
  settings.live_sizes = mode.live_sizes;
  settings.graph.learn = false;
  settings.bars = show_;
  if (mode.threads) settings.threads = mode.threads;
  if (!is_ranked(mode)) {
    settings.tp_size = settings.ep_size = 1;
    settings.enable_expert_parallel = false;
    settings.member = nullptr;
  }
  if (!settings.member) return service::open_local_ranks(std::move(settings));
  service::LocalRanks opened;
  ASSIGN_OR_RETURN(opened.alone, service::open_engine(settings));  // of a launcher's world
  return opened;
}

Status Verification::prepare() {
  ASSIGN_OR_RETURN(const DeviceOptions options,
                   api::device_options(plan_.model.device, plan_.model.ascend_runtime, ::getenv));
  ASSIGN_OR_RETURN(Platform platform, make_platform(options));
  for (const std::string& file : plan_.model.extensions) RETURN_IF_ERROR(load_extension(file, platform));
  const DeviceInfo& device = platform.device->info();
  nn::FusedOps fused = nn::fused_ops();
  for (const auto& e : platform.extensions)
    for (const nn::FusedOp& op : e->ops()) fused.add(op);
  for (const std::string& op : engine::inexact_ops(*platform.kernels, device.kind))
    if (fused.find(op)) inexact_.push_back(op);
  for (const VerifyMode& m : kModes) {
    // A device that freezes sizes does so in every mode, and has no threads.
    if ((!device.live_sizes && !m.live_sizes) || (device.kind != DeviceKind::Cpu && m.threads)) continue;
    modes_.push_back(m);
  }
  if (!inexact_.empty()) modes_.insert(modes_.begin() + 2, kExactPasses);
  return Status::ok();
}

void Verification::step_on(const VerifyMode& mode, std::string_view what, uint64_t cost) {
  size_t number = 1;
  while (number < modes_.size() && !same(modes_[number - 1], mode)) ++number;
  progress_->advance(cost, fmt::format("mode {} of {} ({}), {}", number, modes_.size(), mode.name, what));
}

// How far the kept rows are from the answer key's, for which the key runs once more.
template <typename Again>
Status Verification::measure(const VerifyMode& key, const Outcome& found, const Outcome& right, const Again& again) {
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
  runs_ = verify_runs(*plain, plan_.largest, plan_.quick);
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
      const VerifyMode& mode = second ? kFusedKey : kKey;
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

Status Verification::check_run(engine::Engine& e, const VerifyMode& mode, size_t index) {
  const VerifyRun& run = runs_.runs[index];
  if (run.traffic.feed == Feed::Drafted && e.max_verify_rows() == 0) {
    leave_out(fmt::format("steps with drafts, {}: {}", mode.name, e.verify_refusal()));
    step_on(mode, run.name, run.cost());
    return Status::ok();
  }
  const VerifyMode& key = key_of(mode);
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
Status Verification::judge_unchanged(const VerifyMode& mode, int64_t batch, const std::set<std::string>& unchanged) {
  const VerifyMode& key = key_of(mode);
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

Status Verification::check_changes(engine::Engine& e, const VerifyMode& mode) {
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

Status Verification::check_mode(const VerifyMode& mode) {
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
void Verification::check_feeds(const VerifyMode& key, const DeviceInfo& device) {
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
  for (const VerifyMode& mode : modes_)
    if (!is_key(mode)) RETURN_IF_ERROR(check_mode(mode));
  return Status::ok();
}

Status Verification::check_case() {
  const std::string& source = plan_.case_file;
  ASSIGN_OR_RETURN(const std::string text, read_file(source, size_t{256} << 20));
  ASSIGN_OR_RETURN(const engine::ReplayCase c, engine::parse_case(text, source));
  progress_ = std::make_unique<Progress>("verifying", modes_.size(), show_);
  for (const VerifyMode& mode : modes_) {
    ASSIGN_OR_RETURN(auto e, open(mode));
    const VerifyMode& key = key_of(mode);
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
  for (const VerifyMode& mode : modes_) {
    if (!is_ranked(mode)) continue;
    ASSIGN_OR_RETURN(auto e, open(mode));
    RETURN_IF_ERROR(e->follow());
  }
  return Status::ok();
}

}  // namespace reprise::verification
