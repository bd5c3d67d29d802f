// `reprise graph verify`: the same traffic through every graph mode, with and without passes, compared bit for bit with
// the eager, unfused run.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/progress.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/terminal.h"

namespace reprise::apps {
namespace {

struct VerifyFlags {
  ModelFlags model;
  bool json = false;
  int64_t largest = 64;
};

struct Mode {
  const char* name;
  const char* graph;
  const char *decode, *prefill;  // null: not given
  const char* passes;
};
// The first is the answer key.
constexpr Mode kModes[] = {{"eager, no passes", "off", nullptr, nullptr, "none"},
                           {"eager, all passes", "off", nullptr, nullptr, "all"},
                           {"whole decode, piecewise prefill, no passes", "auto", "whole", "piecewise", "none"},
                           {"whole decode, piecewise prefill, all passes", "auto", "whole", "piecewise", "all"},
                           {"piecewise decode, whole prefill, all passes", "auto", "piecewise", "whole", "all"}};

struct Totals {
  int64_t sizes = 0, tokens = 0, mismatches = 0;
  double max_abs_diff = 0;
};

// One prefill and two decode steps of `batch` sequences with fixed random tokens; the logits of all three.
Result<std::vector<float>> traffic(engine::Engine& e, int64_t batch) {
  uint32_t seed = static_cast<uint32_t>(batch) * 2654435761u + 1;
  const auto vocab = static_cast<uint32_t>(e.config().vocab_size);
  auto token = [&] {
    seed = seed * 1664525u + 1013904223u;
    return static_cast<int32_t>((seed >> 8) % vocab);
  };
  std::vector<engine::Sequence> sequences;
  for (int64_t i = 0; i < batch; ++i) {
    std::vector<int32_t> prompt(static_cast<size_t>(1 + (i * 5) % 11));
    for (auto& t : prompt) t = token();
    sequences.emplace_back(std::move(prompt));
  }
  std::vector<float> out;
  Status failed;
  for (auto& s : sequences)
    if (failed.is_ok()) failed = e.reserve(s, s.size() + 2);
  for (int step = 0; step < 3 && failed.is_ok(); ++step) {
    std::vector<engine::StepItem> items;
    for (auto& s : sequences) items.push_back({&s, s.uncached(), true, false});
    auto logits = e.step(items);
    if (!logits.is_ok())
      failed = logits.status();
    else
      out.insert(out.end(), logits->begin(), logits->end());
    for (auto& s : sequences) s.append(token());
  }
  for (auto& s : sequences) e.release(s);
  if (!failed.is_ok()) return failed;
  return out;
}

Status run_verify(const VerifyFlags& f) {
  Totals totals;
  std::vector<std::vector<float>> key;
  std::vector<std::string> differing;
  for (const Mode& mode : kModes) {
    ModelFlags flags = f.model;
    flags.graph.graph = mode.graph;
    if (mode.decode) flags.graph.decode = mode.decode;
    if (mode.prefill) flags.graph.prefill = mode.prefill;
    flags.graph.passes = mode.passes;
    // Of the aliases only sizes and limits count; modes are the check's own.
    const GraphAliases& said = f.model.graph.aliases;
    flags.graph.aliases = {.cuda_graph_bs = said.cuda_graph_bs,
                           .cuda_graph_max_bs = said.cuda_graph_max_bs,
                           .torch_compile_max_bs = said.torch_compile_max_bs,
                           .piecewise_tokens = said.piecewise_tokens,
                           .piecewise_max_tokens = said.piecewise_max_tokens};
    ASSIGN_OR_RETURN(auto e, open_engine(flags));
    const int64_t largest = std::min(f.largest, e->max_step_rows());
    Progress progress(mode.name, static_cast<uint64_t>(largest), !f.json);
    for (int64_t batch = 1; batch <= largest; ++batch) {
      auto logits = traffic(*e, batch);
      if (!logits.is_ok()) return logits.status().at(fmt::format("{}, batch {}", mode.name, batch));
      progress.advance(1);
      if (&mode == &kModes[0]) {
        key.push_back(std::move(*logits));
        continue;
      }
      const auto& expected = key[static_cast<size_t>(batch - 1)];
      ++totals.sizes;
      totals.tokens += 3 * batch;
      if (expected.size() == logits->size() &&
          std::memcmp(expected.data(), logits->data(), expected.size() * sizeof(float)) == 0)
        continue;
      ++totals.mismatches;
      differing.push_back(fmt::format("{}, batch {}", mode.name, batch));
      for (size_t i = 0; i < std::min(expected.size(), logits->size()); ++i)
        totals.max_abs_diff = std::max(totals.max_abs_diff, std::fabs(static_cast<double>(expected[i]) - (*logits)[i]));
    }
  }
  if (f.json) {
    OrderedJson j;
    j["modes"] = OrderedJson::array();
    for (const Mode& m : kModes) j["modes"].push_back(m.name);
    j["sizes_checked"] = totals.sizes;
    j["tokens_checked"] = totals.tokens;
    j["mismatches"] = totals.mismatches;
    j["max_abs_diff"] = totals.max_abs_diff;
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("{} modes, {} batches, {} tokens: {} mismatches\n", std::size(kModes), totals.sizes, totals.tokens,
               totals.mismatches);
  }
  if (totals.mismatches == 0) return Status::ok();
  return error(Code::Internal, "{} of {} batches differ from the eager run, the first: {}", totals.mismatches,
               totals.sizes, differing.front());
}

}  // namespace

Command add_graph_verify(CLI::App& graph) {
  auto flags = std::make_shared<VerifyFlags>();
  Command c;
  c.app = graph.add_subcommand("verify", "Every graph mode against the eager, unfused run, bit for bit");
  flags->model.add_to(*c.app);
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  add_integer(*c.app, "--largest", flags->largest, {1, 4096}, "batches from 1 to this");
  c.app->footer("Exit code 1 on any difference. --graph* and --passes are set by the check itself.");
  c.check = [flags] { return flags->model.check(); };
  c.run = [flags] { return run_verify(*flags); };
  return c;
}

}  // namespace reprise::apps
