// `reprise graph explain`: what was compiled from the model, and why.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "api/text_model.h"
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "see/decisions.h"
#include "see/explain.h"
#include "see/graph_report.h"
#include "see/phase_view.h"
#include "see/product_report.h"
#include "see/queue_table.h"
#include "see/stream_report.h"
#include "see/token_reason.h"
#include "service/local_ranks.h"
#include "settings/setting.h"
#include "settings/values.h"

namespace reprise::apps {

using namespace see;

namespace {

struct ExplainFlags {
  ModelFlags model;
  bool json = false;
  std::string phase = "decode";
  int64_t rank = 0;
  std::optional<int64_t> why;  // which token of the answer
  std::optional<std::string> prompt, prompt_ids;
  bool apply_chat_template = false;

  Status check() const {
    RETURN_IF_ERROR(model.check());
    RETURN_IF_ERROR(check_rank(model, rank));
    if (!why) {
      if (prompt || prompt_ids || apply_chat_template) return invalid("a prompt needs --why N");
      return Status::ok();
    }
    if (prompt.has_value() + prompt_ids.has_value() != 1)
      return invalid("--why needs exactly one of --prompt and --prompt-ids");
    if (apply_chat_template && prompt_ids) return invalid("--prompt-ids cannot go with --apply-chat-template");
    if (rank != 0) return invalid("--why is about rank 0, which makes the tokens");
    if (prompt_ids) return settings::parse_integers(*prompt_ids, {0, INT32_MAX}).status().at("--prompt-ids");
    return Status::ok();
  }
};

// The same reason at many nodes is one line.
void print_refusals(const PassReport& p) {
  constexpr size_t kPlaces = 4, kReasons = 6;
  std::vector<std::pair<std::string, std::vector<uint32_t>>> by_reason;
  for (const PassRemark& r : p.refused) {
    auto it = std::find_if(by_reason.begin(), by_reason.end(), [&](auto& known) { return known.first == r.reason; });
    if (it == by_reason.end()) it = by_reason.insert(it, {r.reason, {}});
    it->second.push_back(r.at);
  }
  for (size_t i = 0; i < std::min(kReasons, by_reason.size()); ++i) {
    const auto& at = by_reason[i].second;
    std::string places;
    for (size_t k = 0; k < std::min(kPlaces, at.size()); ++k) places += fmt::format("{}%{}", k ? ", " : "", at[k]);
    if (at.size() > kPlaces) places += fmt::format(" and {} more", at.size() - kPlaces);
    fmt::print("    {}: {}\n", places, settings::as_flags(by_reason[i].first));
  }
  if (by_reason.size() > kReasons) fmt::print("    and {} more reasons\n", by_reason.size() - kReasons);
  const auto kept = static_cast<int64_t>(p.refused.size());
  if (p.refusals > kept) fmt::print("    and {} more refusals\n", p.refusals - kept);
}

void explain_text(engine::Engine& e, const PhaseView& v) {
  const CompiledModel& m = v.model();
  fmt::print("{} {}: {}, {} launches a step in {} pieces, {} sizes, {:.1f} MB planned\n", v.phase,
             coloured(Colour::Bold, m.graph().name(), stdout), phase_mode(v.runner), launches_of_step(m),
             m.pieces().size(), v.runner->sizes().size(), static_cast<double>(m.plan().arena_bytes) / 1e6);
  fmt::print("\n{}\n", settings::as_flags(decision_table(decisions(e))));
  if (const auto queues = queue_table(e)) fmt::print("\n{}\n", settings::as_flags(queue_text(*queues)));
  if (const std::string drafts = drafts_text(e); !drafts.empty())
    fmt::print("\nlearned from earlier runs, by place in a step\n{}", drafts);
  fmt::print("\n{:<28}{:>7}{:>9}{:>9}{:>14}{:>9}\n", "pass", "tried", "matched", "refused", "nodes", "ms");
  for (const PassReport& p : v.passes->passes) {
    fmt::print("{:<28}{:>7}{:>9}{:>9}{:>14}{:>9.2f}{}\n", p.name, p.tried, p.matched, p.refusals,
               fmt::format("{} > {}", p.nodes_before, p.nodes_after), p.seconds * 1e3,
               p.skipped.empty() ? "" : fmt::format("  ({})", settings::as_flags(p.skipped)));
    print_refusals(p);
  }
  fmt::print("\n{:<8}{:<10}{:>9}  ops\n", "piece", "", "kernels");
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(kShown, m.pieces().size()); ++i) {
    std::string ops = ops_of(m, m.pieces()[i]);
    if (const std::string heads = heads_of(m, m.pieces()[i]); !heads.empty()) ops += fmt::format(" (for {})", heads);
    if (ops.size() > 110) ops = ops.substr(0, 107) + "...";
    fmt::print("{:<8}{:<10}{:>9}  {}\n", i, m.pieces()[i].captured ? "captured" : "launched",
               m.pieces()[i].thunks.size(), ops);
  }
  if (m.pieces().size() > kShown) fmt::print("... {} more pieces\n", m.pieces().size() - kShown);
  if (const auto streams = stream_report(m)) fmt::print("\n{}", settings::as_flags(stream_text(*streams)));
  if (const auto share = contents_of_rank(e, m)) {
    fmt::print(
        "\nrank {} of {}: {:.1f} MB of weights, {:.1f} MB of KV cache, {:.1f} MB shared for what ranks exchange\n",
        share->rank, share->ranks, static_cast<double>(share->weight_bytes) / 1e6,
        static_cast<double>(share->kv_bytes) / 1e6, static_cast<double>(share->exchange_bytes) / 1e6);
    fmt::print("{:<20}{:>8}{:>16}{:>16}\n", "collective", "a step", "bytes a row", "of this rank");
    for (const Exchange& x : share->exchanges)
      fmt::print("{:<20}{:>8}{:>16}{:>16}\n", x.op, x.count, x.row_bytes, x.own_bytes);
  }
  if (const auto products = product_report(m)) fmt::print("\n{}", settings::as_flags(product_text(*products)));
  fmt::print("\n{:<42}{:>8}\n", "kernel", "calls");
  for (const auto& [name, calls] : kernel_calls(m)) fmt::print("{:<42}{:>8}\n", name, calls);
}

Result<std::vector<int32_t>> prompt_of(const ExplainFlags& f, const api::TextModel& text) {
  if (f.prompt_ids) {
    ASSIGN_OR_RETURN(const auto ids, settings::parse_integers(*f.prompt_ids, {0, INT32_MAX}));
    return std::vector<int32_t>(ids.begin(), ids.end());
  }
  if (!f.apply_chat_template) return text.encode(*f.prompt);
  return text.encode_chat({{{"role", "user"}, {"content", *f.prompt}}});
}

Status run_why(const ExplainFlags& f) {
  ASSIGN_OR_RETURN(const service::LocalRanks ranks, service::open_local_ranks(f.model));
  engine::Engine& e = *ranks;
  ASSIGN_OR_RETURN(const api::TextModel text, api::TextModel::open(f.model, "", e));
  ASSIGN_OR_RETURN(std::vector<int32_t> prompt, prompt_of(f, text));
  const auto& ends = e.config().eos_token_ids;
  ASSIGN_OR_RETURN(const TokenReason reason, explain_token(e, std::move(prompt), *f.why, {ends.begin(), ends.end()}));
  const auto text_of = [&](int32_t id) {
    auto decoded = text.tokenizer() ? text.tokenizer()->decode({&id, 1}) : Result<std::string>(std::string());
    return decoded.is_ok() ? *decoded : std::string();
  };
  if (f.json)
    fmt::print("{}\n", reason_json(reason, text_of).dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  else
    fmt::print("{}", settings::as_flags(reason_text(reason, text_of)));
  return Status::ok();
}

Status run_explain(const ExplainFlags& f) {
  if (f.why) return run_why(f);
  ASSIGN_OR_RETURN(const service::LocalRanks ranks, service::open_local_ranks(f.model));
  engine::Engine& e = ranks.at(f.rank);
  ASSIGN_OR_RETURN(const PhaseView v, view_of_phase(e, f.phase));
  if (f.json)
    fmt::print("{}\n", settings::as_flags(explain_json(e, v).dump()));
  else
    explain_text(e, v);
  return Status::ok();
}

}  // namespace

Command add_graph_explain(CLI::App& graph) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* app = graph.add_subcommand("explain", "What the passes matched and refused, pieces, sizes, memory");
  add_switch(*app, "--json", flags->json, "one JSON object on standard output");
  flags->model.add_to(*app);
  add_choice(*app, "--phase", flags->phase, {"decode", "prefill", "verify"},
             "which graph; verify: that of steps with drafts, where --speculative-algorithm captures one");
  add_rank(*app, flags->rank);
  add_integer(*app, "--why", flags->why, {1, 1 << 24},
              "explain this token of the greedy answer to a prompt: its step, size, kernels, order of sums and time");
  add_text(*app, "-p,--prompt", flags->prompt, "with --why: raw text to continue");
  add_text(*app, "--prompt-ids", flags->prompt_ids, "the same as token ids; needs no tokenizer", "N,N,...");
  add_switch(*app, "--apply-chat-template", flags->apply_chat_template, "wrap the prompt as a user's message");
  return {app, [flags] { return flags->check(); }, [flags] { return run_explain(*flags); }};
}

}  // namespace reprise::apps
