#include "see/token_reason.h"

#include <algorithm>
#include <chrono>

#include "backends/sum_order.h"
#include "base/elapsed.h"
#include "engine/phases.h"

namespace reprise::see {
namespace {

constexpr int kCandidates = 5;

// One sequence that is continued greedily; gives its pages back.
class Greedy {
 public:
  Greedy(engine::Engine& e, std::vector<int32_t> prompt) : engine_(e), sequence_(std::move(prompt)) {}
  ~Greedy() { engine_.release(sequence_); }
  Greedy(const Greedy&) = delete;
  Greedy& operator=(const Greedy&) = delete;

  struct Step {
    std::string_view phase;
    int64_t rows = 0, cached = 0;
    engine::StepPlan plan;
    double us = 0;
    std::span<const float> logits;  // of its last row; good until the next step
  };

  Status reserve(int64_t tokens) { return engine_.reserve(sequence_, tokens); }

  // The step with the last token known; everything before it comes first, in steps of their own.
  Result<Step> last_token() {
    while (sequence_.uncached() > engine_.max_step_tokens()) {
      const engine::StepItem item{&sequence_, engine_.max_step_tokens()};
      RETURN_IF_ERROR(engine_.step({&item, 1}).status());
      ++steps_;
    }
    const engine::StepItem item{&sequence_, sequence_.uncached(), 1};
    Step s;
    s.rows = item.count;
    s.cached = sequence_.cached();
    for (const engine::PhaseSpec& phase : engine::kPhases)
      if (s.phase.empty() && phase.takes({&item, 1})) s.phase = phase.name;
    const engine::StepRunner* runner = engine_.runner(s.phase);
    if (!runner) return error(Code::Unsupported, "this engine has no steps of one sequence");
    ASSIGN_OR_RETURN(s.plan, runner->plan(s.rows));
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(s.logits, engine_.step({&item, 1}));
    s.us = seconds_since(begin) * 1e6;
    ++steps_;
    return s;
  }
  void append(int32_t token) { sequence_.append(token); }
  int64_t size() const { return sequence_.size(); }
  int64_t steps() const { return steps_; }

 private:
  engine::Engine& engine_;
  engine::Sequence sequence_;
  int64_t steps_ = 0;
};

int32_t largest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The ops of a step that returns logits.
std::vector<OpInStep> ops_in(const CompiledModel& model, const DeviceInfo& device, DType dtype) {
  std::vector<OpInStep> out;
  for (const Piece& piece : model.pieces()) {
    if ((piece.heads & engine::head_of(engine::StepOutput::Logits)) == 0) continue;
    for (const Thunk& t : piece.thunks) {
      const OpSchema& op = *model.node(t.node)->op;
      auto known = std::find_if(out.begin(), out.end(), [&](const OpInStep& o) { return o.op == op.name; });
      if (known == out.end())
        known = out.insert(
            out.end(),
            {op.name, 0, {}, op.doc, std::string(sum_order(device, op.name, dtype, model.node(t.node)->attrs))});
      ++known->launches;
      const std::string& kernel = model.kernel(t.node)->name;
      if (std::find(known->kernels.begin(), known->kernels.end(), kernel) == known->kernels.end())
        known->kernels.push_back(kernel);
    }
  }
  return out;
}

std::optional<double> middle_of(std::vector<double> v) {
  if (v.empty()) return std::nullopt;
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

Status check(const engine::Engine& e, const std::vector<int32_t>& prompt, int64_t number) {
  if (prompt.empty()) return invalid("the prompt is empty: there is no step that could make a token");
  for (const int32_t t : prompt)
    if (t < 0 || t >= e.vocab_size()) return invalid("token {} of the prompt; allowed: 0 to {}", t, e.vocab_size() - 1);
  const int64_t room = e.context_length() - static_cast<int64_t>(prompt.size());
  if (number > room)
    return invalid("token {} of an answer to {} tokens; the context of {} has room for {}", number, prompt.size(),
                   e.context_length(), std::max<int64_t>(0, room));
  return Status::ok();
}

std::string graph_line(const TokenReason& r) {
  using Kind = engine::StepPlan::Kind;
  if (r.kind == Kind::Eager) return fmt::format("launched one by one: {}", r.why_eager);
  if (r.kind == Kind::Split) return "run as two sizes";
  return fmt::format("{}, replayed at size {} for {} row{}{}", graph_mode_name(r.mode), r.size, r.rows,
                     r.rows == 1 ? "" : "s",
                     r.live_sizes      ? "; it reads the live size, so no padding is computed"
                     : r.size > r.rows ? fmt::format("; {} rows of padding", r.size - r.rows)
                                       : "");
}

}  // namespace

Result<TokenReason> explain_token(engine::Engine& e, std::vector<int32_t> prompt, int64_t number,
                                  const std::vector<int32_t>& end_tokens) {
  RETURN_IF_ERROR(check(e, prompt, number));
  Greedy greedy(e, std::move(prompt));
  RETURN_IF_ERROR(greedy.reserve(greedy.size() + number - 1));
  std::vector<double> decode_us;
  for (int64_t i = 1;; ++i) {
    ASSIGN_OR_RETURN(const Greedy::Step s, greedy.last_token());
    const int32_t token = largest(s.logits);
    if (i < number) {
      if (std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end())
        return invalid("the answer ended with its token {}; allowed: 1 to {}", i, i);
      if (s.phase == "decode") decode_us.push_back(s.us);
      greedy.append(token);
      continue;
    }
    TokenReason r;
    r.number = number;
    r.position = greedy.size();
    ASSIGN_OR_RETURN(r.token, engine::score_token(s.logits, token, kCandidates));
    if (r.token.top.size() > 1)
      r.margin = s.logits[static_cast<size_t>(token)] - s.logits[static_cast<size_t>(r.token.top[1].token)];
    r.phase = s.phase;
    r.rows = s.rows;
    r.cached = s.cached;
    r.kind = s.plan.kind;
    r.size = s.plan.size;
    r.why_eager = s.plan.reason;
    const CompiledModel* model = e.runner(s.phase)->last_program();
    r.mode = model->mode();
    r.live_sizes = e.device().info().live_sizes;
    r.steps_before = greedy.steps() - 1;
    r.us = s.us;
    r.usual_us = middle_of(std::move(decode_us));
    r.device = e.device().info().name;
    r.dtype = e.dtype();
    r.threads = e.device().info().threads;
    r.ops = ops_in(*model, e.device().info(), e.dtype());
    return r;
  }
}

std::string reason_text(const TokenReason& r, const TextOfToken& text_of) {
  const auto named = [&](int32_t id) {
    const std::string text = text_of(id);
    return text.empty() ? fmt::format("{}", id) : fmt::format("{} {}", id, Json(text).dump());
  };
  std::string out =
      fmt::format("token {} of the answer: {}, at position {}\n\n", r.number, named(r.token.token), r.position);
  std::string others;
  for (size_t i = 1; i < r.token.top.size(); ++i)
    others += fmt::format("{}{} ({:.4f})", i > 1 ? ", " : "", named(r.token.top[i].token), r.token.top[i].logprob);
  out += fmt::format("{:<10}log-probability {:.4f}; next best: {}\n", "chosen", r.token.logprob.value_or(0), others);
  if (r.margin) out += fmt::format("{:<10}its logit is {:.6g} above the next\n", "", *r.margin);
  out += fmt::format("{:<10}a {} step over {} token{}, with {} in the cache, after {} other step{}\n", "step", r.phase,
                     r.rows, r.rows == 1 ? "" : "s", r.cached, r.steps_before, r.steps_before == 1 ? "" : "s");
  out += fmt::format("{:<10}{}\n", "graph", graph_line(r));
  out +=
      fmt::format("{:<10}{:.1f} us{}\n", "time", r.us,
                  r.usual_us ? fmt::format("; the decode steps before it took {:.1f} us (median)", *r.usual_us) : "");
  out += fmt::format("{:<10}{}, {}, {} threads\n\n", "device", r.device, dtype_name(r.dtype), r.threads);
  out += fmt::format("{:<28}{:>9}  kernel; what it computes; in which order it adds up\n", "op", "launches");
  for (const OpInStep& o : r.ops) {
    out += fmt::format("{:<28}{:>9}  {}\n", o.op, o.launches, fmt::join(o.kernels, ", "));
    out += fmt::format("{:<39}{}\n", "", o.rule);
    if (!o.sum_order.empty()) out += fmt::format("{:<39}adds up: {}\n", "", o.sum_order);
  }
  return out;
}

OrderedJson reason_json(const TokenReason& r, const TextOfToken& text_of) {
  const auto token = [&](int32_t id, float logprob) {
    const std::string text = text_of(id);
    return OrderedJson{
        {"id", id}, {"text", text.empty() ? OrderedJson(nullptr) : OrderedJson(text)}, {"logprob", logprob}};
  };
  OrderedJson candidates = OrderedJson::array(), ops = OrderedJson::array();
  for (const auto& t : r.token.top) candidates.push_back(token(t.token, t.logprob));
  for (const OpInStep& o : r.ops)
    ops.push_back({{"op", o.op},
                   {"launches", o.launches},
                   {"kernels", o.kernels},
                   {"computes", o.rule},
                   {"adds_up", o.sum_order.empty() ? OrderedJson(nullptr) : OrderedJson(o.sum_order)}});
  using Kind = engine::StepPlan::Kind;
  OrderedJson j;
  j["number"] = r.number;
  j["position"] = r.position;
  j["token"] = token(r.token.token, r.token.logprob.value_or(0));
  j["candidates"] = std::move(candidates);
  j["margin"] = r.margin ? OrderedJson(*r.margin) : OrderedJson(nullptr);
  j["step"] = {{"phase", r.phase},
               {"tokens", r.rows},
               {"cached", r.cached},
               {"run", r.kind == Kind::Replay  ? "replayed"
                       : r.kind == Kind::Split ? "split"
                                               : "launched"},
               {"mode", graph_mode_name(r.mode)},
               {"size", r.kind == Kind::Replay ? OrderedJson(r.size) : OrderedJson(nullptr)},
               {"reason", r.why_eager},
               {"us", r.us},
               {"usual_us", r.usual_us ? OrderedJson(*r.usual_us) : OrderedJson(nullptr)}};
  j["device"] = r.device;
  j["dtype"] = dtype_name(r.dtype);
  j["threads"] = r.threads;
  j["ops"] = std::move(ops);
  return j;
}

}  // namespace reprise::see
