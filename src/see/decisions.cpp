#include "see/decisions.h"

#include <algorithm>
#include <set>

#include "passes/shard_over_ranks.h"

namespace reprise::see {
namespace {

std::string range(std::string_view phase, int64_t from, int64_t to, std::string_view unit) {
  if (from == to) return fmt::format("{}, {} {}", phase, to, unit);
  return fmt::format("{}, {} to {} {}", phase, from, to, unit);
}

// "31 captured pieces; paged_attention runs uncaptured"
std::string pieces_in_words(const CompiledModel& m) {
  size_t captured = 0;
  std::set<std::string> uncaptured;
  for (const Piece& p : m.pieces()) {
    if (p.heads != kAllHeads) continue;
    captured += p.captured ? 1 : 0;
    for (const Thunk& t : p.thunks)
      if (!p.captured) uncaptured.insert(m.node(t.node)->op->name);
  }
  std::string out = fmt::format("{} captured piece{}", captured, captured == 1 ? "" : "s");
  if (!uncaptured.empty())
    out += fmt::format("; {} {} uncaptured", fmt::join(uncaptured, ", "), uncaptured.size() == 1 ? "runs" : "run");
  return out;
}

bool has_heads(const CompiledModel& m) {
  return std::any_of(m.pieces().begin(), m.pieces().end(), [](const Piece& p) { return p.heads != kAllHeads; });
}

std::string how(const engine::StepRunner& r, const CompiledModel& m, bool padding, bool live_sizes) {
  std::string out = m.mode() == GraphMode::Piecewise ? pieces_in_words(m) : "one graph";
  if (!live_sizes && has_heads(m)) out += "; heads are launched behind it";
  if (live_sizes && padding)
    out += "; serves every size, padding rows are skipped";
  else if (padding)
    out += fmt::format("; {} sizes, batches are padded to the next", r.sizes().size());
  else
    out += fmt::format("; exactly the {} captured sizes", r.sizes().size());
  return out;
}

// Sizes of steps with drafts: which batches, with how many rows for each sequence, and what that takes.
std::string drafts_in_words(const engine::Engine& e, const engine::StepRunner& r) {
  const engine::VerifyRows& v = e.options().graph.verify;
  std::string widths;
  for (const int64_t width : {int64_t{2}, int64_t{4}})
    if (v.adaptive && width < v.each) widths += fmt::format("{}, ", width);
  return fmt::format("; batches up to {} times {}{} rows; activations {:.1f} MB, graphs {:.1f} MB", e.max_step_rows(),
                     widths, v.each, static_cast<double>(r.planned_bytes()) / 1e6,
                     static_cast<double>(r.graph_bytes()) / 1e6);
}

void add_phase(std::vector<Decision>& rows, engine::Engine& e, const engine::PhaseSpec& spec) {
  const engine::StepRunner& r = *e.runner(spec.name);
  const auto [phase, unit] = std::pair(spec.name, spec.unit);
  const int64_t largest = spec.drafts ? r.largest() : spec.largest(e.max_step_rows(), e.max_step_tokens());
  if (!r.uncaptured_reason().empty() || r.mode() == GraphMode::Eager) {
    rows.push_back({fmt::format("{}, any number of {}", phase, unit), "eager",
                    r.uncaptured_reason().empty() ? "nothing is captured" : r.uncaptured_reason()});
    return;
  }
  const bool live_sizes = e.device().info().live_sizes, padding = e.options().graph.padding;
  const int64_t top = r.sizes().empty() ? 0 : r.sizes().back();
  const int64_t fused = e.options().graph.fused_decode_max;
  const bool two = r.models().size() > 1;
  for (const bool unfused : {false, true}) {
    if (unfused && !two) break;
    const int64_t from = unfused ? fused + 1 : spec.drafts ? 2 : 1, to = two && !unfused ? std::min(fused, top) : top;
    if (from > to) continue;
    const CompiledModel& m = r.model(from);
    std::string reason = how(r, m, padding, live_sizes);
    if (spec.drafts) reason += drafts_in_words(e, r);
    if (unfused) reason += fmt::format("; the unfused plan, as sizes above {} are to have", fused);
    rows.push_back({range(phase, from, to, unit), std::string(graph_mode_name(m.mode())), reason});
  }
  for (const auto& d : r.dropped()) rows.push_back({fmt::format("{}, size {}", phase, d.size), "left out", d.reason});
  for (const auto& [size, reason] : r.quarantined())
    rows.push_back({fmt::format("{}, size {}", phase, size), "eager", reason});
  if (!padding)
    rows.push_back({fmt::format("{}, other sizes", phase), "eager", "padding is off and the size is not captured"});
  if (top < largest)
    rows.push_back({fmt::format("{}, above {} {}", phase, top, unit), "eager",
                    fmt::format("larger than the largest captured size {}", top)});
}

// Who draws the tokens of requests that are not greedy, or whose logits are changed first.
Decision sampled_tokens(engine::Engine& e) {
  std::string why;
  for (const PassReport& p : e.passes("decode")->passes)
    for (const PassRemark& r : p.applied)
      if (p.name == "sampling_head" || r.reason.find(kDrawnByRanks) != std::string::npos)
        why += (why.empty() ? "" : "; ") + r.reason;
  return {"sampled tokens",
          e.draws_on_device()     ? "device"
          : e.has_sampled_steps() ? "hosts of all ranks"
                                  : "host",
          why.empty() ? "drawn where the logits are, also under grammars, biases and penalties" : why};
}

// Whether rows go to the ranks of their experts alone, where that was asked for; else why not.
void add_sent_rows(std::vector<Decision>& rows, const engine::Engine& e) {
  if (e.options().graph.pipeline.ranks.sent_tokens == 0) return;
  constexpr std::string_view kWords = "sent to the ranks of their experts", kNot = "not sent";
  std::vector<std::string> reasons;
  bool all = true;
  for (const char* phase : {"decode", "prefill"}) {
    const PipelineReport* report = e.passes(phase);
    if (!report) continue;
    for (const PassReport& p : report->passes)
      for (const PassRemark& r : p.applied) {
        if (r.reason.find(kWords) == std::string::npos) continue;
        all = all && r.reason.find(kNot) == std::string::npos;
        if (std::find(reasons.begin(), reasons.end(), r.reason) == reasons.end()) reasons.push_back(r.reason);
      }
  }
  if (!reasons.empty())
    rows.push_back({"rows of experts", all ? "sent" : "exchanged", fmt::format("{}", fmt::join(reasons, "; "))});
}

// Which list of factors turns positions, of models with two.
void add_rotation(std::vector<Decision>& rows, const engine::Engine& e) {
  const checkpoint::RopeScaling& rope = e.config().rope;
  if (rope.long_positions == 0) return;
  const int64_t context = e.context_length(), original = e.config().max_position_embeddings;
  rows.push_back({"rotation", rope.takes_long ? "long" : "short",
                  rope.takes_long ? fmt::format("longrope: the context of {} is above {}; sequences of every length "
                                                "take the long factors",
                                                context, original)
                                  : fmt::format("longrope: the context of {} is not above {}; one up to {} would take "
                                                "the long factors",
                                                context, original, rope.long_positions)});
}

// Steps that verify drafts, where a drafter makes some.
void add_drafts(std::vector<Decision>& rows, engine::Engine& e, const std::string& decode_mode) {
  if (e.phases().size() > engine::kVerifyPhase) return add_phase(rows, e, e.phases()[engine::kVerifyPhase]);
  const int64_t most = e.max_verify_rows();
  if (most < 2)
    rows.push_back({"verify", "none", most == 0 ? e.verify_refusal() : "a step has one row"});
  else
    rows.push_back({fmt::format("verify, up to {} rows", most), decode_mode, "decode's graph: a draft is a row more"});
}

}  // namespace

std::vector<Decision> decisions(engine::Engine& e) {
  std::vector<Decision> rows;
  if (e.pooled_size() > 0) {  // whole texts, of which nothing is decoded
    add_phase(rows, e, engine::kPhases[engine::kAnyPhase]);
    add_rotation(rows, e);
    return rows;
  }
  size_t last = 0;
  for (const size_t phase : {size_t{0}, engine::kAnyPhase}) {
    last = rows.size();
    add_phase(rows, e, engine::kPhases[phase]);
  }
  const std::string mode = rows[last].mode;
  if (e.overlaps() && e.max_in_flight() > 2)
    rows.push_back({fmt::format("decode, {} steps at once", e.max_in_flight() - 1), rows.front().mode,
                    "each takes its tokens from the one before on the device; one step where somebody waits, a prompt "
                    "is read or the host must see a token"});
  rows.push_back({"prefill and decode in one step", mode, "runs as prefill of all its tokens"});
  rows.push_back({"prompt log-probabilities", mode,
                  fmt::format("the same graphs, up to {} rows with logits a step", e.max_step_rows())});
  rows.push_back(sampled_tokens(e));
  add_drafts(rows, e, rows[0].mode);
  add_sent_rows(rows, e);
  add_rotation(rows, e);
  return rows;
}

std::string decision_table(const std::vector<Decision>& rows) {
  std::string out;
  size_t width = 0;
  for (const Decision& d : rows) width = std::max(width, d.shape.size());
  for (const Decision& d : rows)
    out += fmt::format("{}  {:<{}}  {:<9}  {}", out.empty() ? "" : "\n", d.shape, width, d.mode, d.reason);
  return out;
}

}  // namespace reprise::see
