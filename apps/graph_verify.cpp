// `reprise graph verify`: every graph mode against the eager, unfused run, bit for bit (verification/verification.h).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "verification/verification.h"

namespace reprise::apps {

namespace {

struct VerifyFlags {
  ModelFlags model;
  bool json = false;
  verification::VerifyPlan plan = {};  // what `model` does not say

  verification::VerifyPlan whole() const {
    verification::VerifyPlan out = plan;
    out.model = model;
    return out;
  }
};

OrderedJson json_of(const verification::Verification& v) {
  const verification::VerifyTotals& totals = v.totals();
  OrderedJson j;
  j["modes"] = OrderedJson::array();
  for (const verification::VerifyMode& m : v.modes()) j["modes"].push_back(m.name);
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

void print_text(const verification::Verification& v) {
  const verification::VerifyTotals& totals = v.totals();
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
  verification::Verification v(f.whole(), level <= log::Level::Info);
  Status done = v.prepare();
  if (done.is_ok()) done = f.plan.case_file.empty() ? v.check_all() : v.check_case();
  log::set_level(level);
  RETURN_IF_ERROR(done);
  if (f.json)
    fmt::print("{}\n", json_of(v).dump());
  else
    print_text(v);
  const verification::VerifyTotals& totals = v.totals();
  if (totals.mismatches == 0) return Status::ok();
  return error(Code::Internal, "{} checks failed, the first: {}", totals.mismatches, totals.wrong.front());
}

// A case with drafts is run by steps with drafts, as many of a sequence as it has, unless the flags say otherwise. What
// is wrong with the file is told when it is run.
void take_drafts_of_case(VerifyFlags& f) {
  api::SpeculationSettings& speculation = f.model.speculation;
  if (f.plan.case_file.empty() || speculation.algorithm != "none" || speculation.config) return;
  const auto text = read_file(f.plan.case_file, size_t{256} << 20);
  if (!text.is_ok()) return;
  const auto c = engine::parse_case(*text, f.plan.case_file);
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
  add_switch(*c.app, "--quick", flags->plan.quick,
             "a few batches instead of all: every mode, both phases, padding, chunks and borders of pages");
  add_integer(*c.app, "--largest", flags->plan.largest, {1, 4096}, "batches from 1 to this");
  add_text(*c.app, "--case", flags->plan.case_file, "only the step of this replay report (--verify-replay writes them)",
           "FILE");
  c.app->footer(
      "Exit code 1 on any difference. --graph* and --passes are set by the check itself; --pass-file, sizes and "
      "--inject-fault hold for every mode but the answer key.");
  c.check = [flags]() -> Status {
    if (flags->plan.quick && !flags->plan.case_file.empty())
      return invalid("--quick chooses among batches; --case runs one step");
    take_drafts_of_case(*flags);
    return flags->model.check();
  };
  c.over_ranks = [flags] { return &flags->model; };
  c.as_threads = true;
  c.follow = [flags] { return verification::Verification(flags->whole(), false).follow(); };
  c.run = [flags] { return run_verify(*flags); };
  return c;
}

}  // namespace reprise::apps
