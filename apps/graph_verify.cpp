// `reprise graph verify`: the same traffic through every graph mode, with and without passes, compared bit for bit with
// the eager, unfused run; with garbage wherever nothing may depend on it; and every staged input changed, to see that
// it is read and touches nothing else.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "base/progress.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/terminal.h"
#include "verify/traffic.h"

namespace reprise::apps {
namespace {

struct VerifyFlags {
  ModelFlags model;
  bool json = false;
  int64_t largest = 64;
  std::string case_file;
};

struct Mode {
  const char* name;
  const char* graph;
  const char *decode, *prefill;  // null: not given
  const char* passes;
  bool live_sizes = true;
  int64_t threads = 0;  // 0: as asked
};
// The first is the answer key.
constexpr Mode kModes[] = {
    {"eager, no passes", "off", nullptr, nullptr, "none"},
    {"eager, all passes", "off", nullptr, nullptr, "all"},
    {"whole decode, piecewise prefill, no passes", "auto", "whole", "piecewise", "none"},
    {"whole decode, piecewise prefill, all passes", "auto", "whole", "piecewise", "all"},
    {"piecewise decode, whole prefill, all passes", "auto", "piecewise", "whole", "all"},
    {"whole decode, piecewise prefill, sizes frozen at capture", "auto", "whole", "piecewise", "all", false},
    {"piecewise decode, whole prefill, sizes frozen at capture", "auto", "piecewise", "whole", "all", false},
    {"whole decode, piecewise prefill, one thread", "auto", "whole", "piecewise", "all", true, 1}};

struct Totals {
  int64_t sizes = 0, rows = 0, mismatches = 0, perturbations = 0;
  double max_abs_diff = 0;
  std::vector<std::string> wrong;  // in words

  void add(std::string what) {
    ++mismatches;
    wrong.push_back(std::move(what));
  }
};

Result<std::unique_ptr<engine::Engine>> open_mode(const VerifyFlags& f, const Mode& mode) {
  ModelFlags flags = f.model;
  const bool key = &mode == &kModes[0];
  flags.graph.graph = mode.graph;
  flags.graph.decode = mode.decode ? std::optional<std::string>(mode.decode) : std::nullopt;
  flags.graph.prefill = mode.prefill ? std::optional<std::string>(mode.prefill) : std::nullopt;
  flags.graph.passes = mode.passes;
  if (key) flags.graph.faults.clear();
  // Of the aliases only sizes and limits count; modes are the check's own.
  const GraphAliases& said = f.model.graph.aliases;
  flags.graph.aliases = {.cuda_graph_bs = said.cuda_graph_bs,
                         .cuda_graph_max_bs = said.cuda_graph_max_bs,
                         .torch_compile_max_bs = said.torch_compile_max_bs,
                         .piecewise_tokens = said.piecewise_tokens,
                         .piecewise_max_tokens = said.piecewise_max_tokens};
  flags.live_sizes = mode.live_sizes;
  flags.graph.learn = false;
  if (mode.threads) flags.threads = mode.threads;
  return open_engine(flags);
}

// How far the kept rows are from the answer key's, for which the key runs once more.
template <typename Run>
Status measure(const VerifyFlags& f, const Outcome& found, const Run& run_again, Totals& totals) {
  ASSIGN_OR_RETURN(auto key, open_mode(f, kModes[0]));
  ASSIGN_OR_RETURN(const Outcome right, run_again(*key, found.differing));
  for (size_t i = 0; i < std::min(right.logits.size(), found.logits.size()); ++i) {
    const double gap = std::fabs(static_cast<double>(right.logits[i]) - found.logits[i]);
    if (!(gap <= totals.max_abs_diff)) totals.max_abs_diff = gap;
  }
  return Status::ok();
}

// What an engine says about itself after its traffic: replays that failed, sizes that could not be captured.
void add_remarks(engine::Engine& e, const Mode& mode, Totals& totals) {
  for (const auto* runner : {e.decode_runner(), e.prefill_runner()}) {
    if (!runner) continue;
    for (const auto& [size, reason] : runner->quarantined()) totals.add(fmt::format("{}: {}", mode.name, reason));
    for (const auto& d : runner->dropped()) totals.add(fmt::format("{}: size {}: {}", mode.name, d.size, d.reason));
  }
}

struct Run {
  std::string name;
  TrafficOptions traffic;
};

Status check_mode(const VerifyFlags& f, const Mode& mode, const std::vector<Run>& runs, std::vector<Outcome>& key,
                  Totals& totals) {
  const bool is_key = &mode == &kModes[0];
  ASSIGN_OR_RETURN(auto e, open_mode(f, mode));
  Progress progress(mode.name, runs.size(), !f.json);
  if (!is_key) e->set_step_hook(poison());
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    auto outcome = run_traffic(*e, run.traffic, is_key ? nullptr : &key[i]);
    if (!outcome.is_ok()) return outcome.status().at(fmt::format("{}, {}", mode.name, run.name));
    progress.advance(1, run.name);
    if (is_key) {
      key.push_back(std::move(*outcome));
      continue;
    }
    ++totals.sizes;
    totals.rows += static_cast<int64_t>(outcome->rows.size());
    if (outcome->rows == key[i].rows) continue;
    const bool first = totals.mismatches == 0;
    totals.add(
        fmt::format("{}, {}: {} of {} rows", mode.name, run.name, outcome->differing.size(), key[i].rows.size()));
    if (!first || run.traffic.greedy) continue;
    RETURN_IF_ERROR(measure(
        f, *outcome,
        [&](engine::Engine& again, const std::vector<size_t>& rows) {
          Outcome others = key[i];
          for (const size_t r : rows) others.rows[r] = ~others.rows[r];
          return run_traffic(again, run.traffic, &others);
        },
        totals));
  }
  if (is_key) return Status::ok();
  e->set_step_hook({});
  for (const int64_t batch : {int64_t{1}, std::min<int64_t>(5, e->max_step_rows())}) {
    auto changed = perturb_inputs(*e, batch);
    if (!changed.is_ok()) return changed.status().at(fmt::format("{}, changed inputs, batch {}", mode.name, batch));
    totals.perturbations += changed->checked;
    for (const std::string& w : changed->wrong) totals.add(fmt::format("{}, batch {}: {}", mode.name, batch, w));
  }
  add_remarks(*e, mode, totals);
  return Status::ok();
}

// Every batch up to the largest, then the same sequences fed otherwise, and the tokens that greedy steps find.
std::vector<Run> all_runs(int64_t largest) {
  std::vector<Run> runs;
  for (int64_t batch = 1; batch <= largest; ++batch)
    runs.push_back({fmt::format("batch {}", batch), {batch, 2, Feed::Together, false}});
  for (const int64_t batch : {std::min<int64_t>(3, largest), std::min<int64_t>(11, largest)}) {
    runs.push_back({fmt::format("batch {}, each alone", batch), {batch, 2, Feed::Alone, false}});
    runs.push_back({fmt::format("batch {}, prompts in chunks of 3", batch), {batch, 2, Feed::Chunked, false}});
    runs.push_back({fmt::format("batch {}, greedy tokens", batch), {batch, 2, Feed::Together, true}});
  }
  return runs;
}

Status check_all(const VerifyFlags& f, Totals& totals) {
  std::vector<Run> runs;
  std::vector<Outcome> key;
  for (const Mode& mode : kModes) {
    if (runs.empty()) {
      ASSIGN_OR_RETURN(auto e, open_mode(f, mode));
      runs = all_runs(std::min(f.largest, e->max_step_rows()));
    }
    RETURN_IF_ERROR(check_mode(f, mode, runs, key, totals));
  }
  // Fed otherwise, the rows must be those of the batch: the key's own, too.
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].traffic.feed == Feed::Together) continue;
    const Outcome& together = key[static_cast<size_t>(runs[i].traffic.batch - 1)];
    ++totals.sizes;
    if (together.rows != key[i].rows)
      totals.add(fmt::format("eager, {}: not the rows of the batch together", runs[i].name));
  }
  return Status::ok();
}

Status check_case(const VerifyFlags& f, Totals& totals) {
  ASSIGN_OR_RETURN(const VerifyCase c, load_case(f.case_file));
  std::optional<Outcome> key;
  for (const Mode& mode : kModes) {
    ASSIGN_OR_RETURN(auto e, open_mode(f, mode));
    auto outcome = run_case(*e, c, key ? &*key : nullptr);
    if (!outcome.is_ok()) return outcome.status().at(fmt::format("{}, {}", f.case_file, mode.name));
    if (!key) {
      key = std::move(*outcome);
      continue;
    }
    ++totals.sizes;
    totals.rows += static_cast<int64_t>(outcome->rows.size());
    if (outcome->rows == key->rows) continue;
    const bool first = totals.mismatches == 0;
    totals.add(fmt::format("{}: {} of {} rows", mode.name, outcome->differing.size(), key->rows.size()));
    if (!first) continue;
    RETURN_IF_ERROR(measure(
        f, *outcome,
        [&](engine::Engine& again, const std::vector<size_t>& rows) {
          Outcome others = *key;
          for (const size_t r : rows) others.rows[r] = ~others.rows[r];
          return run_case(again, c, &others);
        },
        totals));
  }
  return Status::ok();
}

Status run_verify(const VerifyFlags& f) {
  const log::Level level = log::level();
  // Eight engines have little new to say, except to `./dev bisect`, which asks for the last change made.
  if (level == log::Level::Info && !std::getenv("REPRISE_PASS_BISECT_LIMIT")) log::set_level(log::Level::Warning);
  Totals totals;
  const Status done = f.case_file.empty() ? check_all(f, totals) : check_case(f, totals);
  log::set_level(level);
  RETURN_IF_ERROR(done);
  if (f.json) {
    OrderedJson j;
    j["modes"] = OrderedJson::array();
    for (const Mode& m : kModes) j["modes"].push_back(m.name);
    j["sizes_checked"] = totals.sizes;
    j["tokens_checked"] = totals.rows;
    j["inputs_changed"] = totals.perturbations;
    j["mismatches"] = totals.mismatches;
    j["max_abs_diff"] = totals.max_abs_diff;
    j["what"] = totals.wrong;
    fmt::print("{}\n", j.dump());
  } else {
    for (size_t i = 0; i < std::min<size_t>(totals.wrong.size(), 10); ++i)
      fmt::print("{} {}\n", coloured(Colour::Red, "differs", stdout), totals.wrong[i]);
    fmt::print("{} modes, {} runs, {} rows of logits, {} changed inputs: {} mismatches\n", std::size(kModes),
               totals.sizes, totals.rows, totals.perturbations, totals.mismatches);
  }
  if (totals.mismatches == 0) return Status::ok();
  return error(Code::Internal, "{} checks failed, the first: {}", totals.mismatches, totals.wrong.front());
}

}  // namespace

Command add_graph_verify(CLI::App& graph) {
  auto flags = std::make_shared<VerifyFlags>();
  Command c;
  c.app = graph.add_subcommand("verify", "Every graph mode against the eager, unfused run, bit for bit");
  flags->model.add_to(*c.app);
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  add_integer(*c.app, "--largest", flags->largest, {1, 4096}, "batches from 1 to this");
  add_text(*c.app, "--case", flags->case_file, "only the step of this replay report (--verify-replay writes them)",
           "FILE");
  c.app->footer(
      "Exit code 1 on any difference. --graph* and --passes are set by the check itself; --pass-file, sizes and "
      "--inject-fault hold for every mode but the answer key.");
  c.check = [flags] { return flags->model.check(); };
  c.run = [flags] { return run_verify(*flags); };
  return c;
}

}  // namespace reprise::apps
