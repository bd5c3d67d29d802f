#include "see/step_profile.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>

#include "base/elapsed.h"
#include "models/model.h"

namespace reprise::see {
namespace {

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// The sequences of the step; they can take it again and again.
class Batch {
 public:
  Batch(engine::Engine& e, const ProfileOptions& o) : engine_(e), options_(o) {
    std::mt19937 random(1);
    const auto vocab = static_cast<uint32_t>(e.config().vocab_size);
    for (int64_t i = 0; i < o.batch; ++i) {
      std::vector<int32_t> tokens(static_cast<size_t>(o.context));
      for (int32_t& t : tokens) t = static_cast<int32_t>(random() % vocab);
      sequences_.push_back(std::make_unique<engine::Sequence>(std::move(tokens)));
    }
  }
  ~Batch() {
    for (auto& s : sequences_) engine_.release(*s);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Pages, and for decode everything but the last token in the cache.
  Status prepare() {
    for (auto& s : sequences_) {
      RETURN_IF_ERROR(engine_.reserve(*s, options_.context));
      while (decode() && s->uncached() > 1) {
        const engine::StepItem item{s.get(), std::min(s->uncached() - 1, engine_.max_step_tokens())};
        RETURN_IF_ERROR(engine_.step({&item, 1}).status());
      }
    }
    for (auto& s : sequences_) items_.push_back({s.get(), s->uncached(), true});
    return Status::ok();
  }
  Status step() {
    for (auto& s : sequences_) s->set_cached(decode() ? options_.context - 1 : 0);
    const bool pooled = engine_.pooled_size() > 0;
    ASSIGN_OR_RETURN(const engine::Ticket ticket,
                     engine_.submit(items_, pooled ? engine::StepOutput::Pooled : engine::StepOutput::Logits));
    return engine_.wait(ticket).status();
  }

 private:
  bool decode() const { return options_.phase == "decode"; }

  engine::Engine& engine_;
  const ProfileOptions& options_;
  std::vector<std::unique_ptr<engine::Sequence>> sequences_;
  std::vector<engine::StepItem> items_;
};

Status check(const engine::Engine& e, const ProfileOptions& o) {
  if (o.batch > e.max_step_rows())
    return invalid("a batch of {} is more than `max_running_requests` {}", o.batch, e.max_step_rows());
  if (o.context > e.context_length())
    return invalid("a context of {} is more than the context length of {}", o.context, e.context_length());
  if (o.phase == "decode" && e.pooled_size() > 0)
    return invalid("the phase decode: {} gives vectors or scores, and decodes nothing; allowed: prefill",
                   e.config().architecture);
  if (o.phase == "decode") return Status::ok();
  if (o.context < 2)
    return invalid("a context of {}: a prompt of one token is a decode step; allowed: 2 or more", o.context);
  if (o.batch * o.context > e.max_step_tokens())
    return invalid("{} prompts of {} tokens do not fit one step of `chunked_prefill_size` {}", o.batch, o.context,
                   e.max_step_tokens());
  return Status::ok();
}

// All that the kernels' costs depend on; nothing is told of pools, of which a step touches little.
StepSizes sizes_of(const engine::Engine& e, const ProfileOptions& o) {
  const bool decode = o.phase == "decode";
  const auto batch = static_cast<double>(o.batch), context = static_cast<double>(o.context);
  StepSizes s;
  s.live.value[models::kTokens] = decode ? o.batch : o.batch * o.context;
  s.live.value[models::kSequences] = o.batch;
  s.live.value[models::kCuSeqlens] = o.batch + 1;
  s.live.value[models::kLogitRows] = o.batch;
  const RankShare& ranks = e.options().graph.pipeline.ranks;
  s.live.value[models::kSharedTokens] =
      models::in_equal_shares(s.live.value[models::kTokens], ranks.sent_tokens > 0 ? ranks.size : 1);
  s.cached_tokens = batch * context;
  s.score_pairs = decode ? batch * context : batch * context * (context + 1) / 2;
  // Rows of a model that keeps nothing of a text see those behind them as well.
  if (e.pooled_size() > 0 && e.memory().kv_page_bytes == 0) s.score_pairs = batch * context * context;
  return s;
}

// The times of one repeat, by node.
struct Repeat {
  std::map<uint32_t, NodeTime> nodes;
  double finish_wait_s = 0;
};

Repeat summed(const Trace& trace) {
  Repeat out;
  std::map<uint32_t, std::pair<int64_t, int64_t>> spans;
  const double tracks = trace.tracks();
  for (int t = 0; t < trace.tracks(); ++t)
    for (const TraceEvent& e : trace.events(t)) {
      const double s = static_cast<double>(e.end_ns - e.begin_ns) * 1e-9 / tracks;
      if (e.node == TraceEvent::kNoNode) {
        out.finish_wait_s += s;
        continue;
      }
      NodeTime& n = out.nodes[e.node];
      if (e.kind == TraceEvent::Kind::Wait) {
        n.wait_s += s;
        continue;
      }
      n.busy_s += s;
      if (e.part > 0) n.meet_s += s;
      auto [span, fresh] = spans.try_emplace(e.node, e.begin_ns, e.end_ns);
      if (!fresh) span->second = {std::min(span->second.first, e.begin_ns), std::max(span->second.second, e.end_ns)};
    }
  for (auto& [node, span] : spans) out.nodes[node].span_s = static_cast<double>(span.second - span.first) * 1e-9;
  return out;
}

}  // namespace

double StepProfile::busy_s() const {
  double s = 0;
  for (const NodeTime& n : nodes) s += n.busy_s;
  return s;
}

double StepProfile::wait_s() const {
  double s = finish_wait_s;
  for (const NodeTime& n : nodes) s += n.wait_s;
  return s;
}

double StepProfile::limit_s() const {
  double s = 0;
  for (const NodeTime& n : nodes)
    if (n.cost.has_limit()) s += n.cost.limit_s(machine);
  return s;
}

std::string StepProfile::warning() const {
  if (const std::string why = disturbance(machine); !why.empty()) return why;
  if (limit_s() <= 1.05 * step_s) return {};
  return "the step was faster than the limits measured after it, so other programs ran while they were measured; "
         "shares "
         "of them are left out. Run it again on a quiet machine";
}

std::optional<double> StepProfile::share(const NodeCost& cost, double span_s) const {
  if (!cost.has_limit() || span_s <= 0 || !warning().empty()) return std::nullopt;
  return 100 * cost.limit_s(machine) / span_s;
}

std::string share_text(bool has_limit, const std::optional<double>& share) {
  if (!has_limit) return "cache";
  return share ? fmt::format("{:.1f}", *share) : "-";
}

namespace {

// What the repeats of one rank gave.
struct RankTrace {
  engine::Engine& engine;
  const CompiledModel& model;
  Trace trace;
  std::vector<Repeat> sums = {};
  std::vector<std::vector<TrackEvent>> events = {};  // of each repeat, by the front's clock

  void take(const Trace& front) {
    // Each trace has a clock of its own; of a few readings in a row the closest ones count.
    int64_t shift = 0, apart = INT64_MAX;
    for (int i = 0; i < 5 && &front != &trace; ++i) {
      const int64_t before = front.now(), here = trace.now(), after = front.now();
      if (after - before < apart) apart = after - before, shift = (before + after) / 2 - here;
    }
    sums.push_back(summed(trace));
    std::vector<TrackEvent>& all = events.emplace_back();
    for (int t = 0; t < trace.tracks(); ++t)
      for (TraceEvent event : trace.events(t)) {
        event.begin_ns += shift;
        event.end_ns += shift;
        all.push_back({t, event});
      }
  }

  void fill(StepProfile& p, size_t shown) {
    p.events = std::move(events[shown]);
    int64_t first = p.end_ns, last = p.begin_ns;
    for (const TrackEvent& e : p.events) {
      first = std::min(first, e.event.begin_ns);
      last = std::max(last, e.event.end_ns);
    }
    p.host_s = static_cast<double>(first - p.begin_ns + p.end_ns - last) * 1e-9;
    const auto middle = [&](auto pick) {
      std::vector<double> v;
      for (const Repeat& r : sums) v.push_back(pick(r));
      return median(std::move(v));
    };
    p.finish_wait_s = middle([](const Repeat& r) { return r.finish_wait_s; });
    for (const auto& entry : sums.front().nodes) {
      const uint32_t node = entry.first;
      const auto of_node = [&](double NodeTime::*time) {
        return middle([&](const Repeat& r) { return r.nodes.at(node).*time; });
      };
      NodeTime n{node, of_node(&NodeTime::busy_s), of_node(&NodeTime::wait_s), of_node(&NodeTime::span_s),
                 cost_of(*model.node(node), p.sizes)};
      if (model.node(node)->op->has(op_trait::kCollective)) n.meet_s = of_node(&NodeTime::meet_s);
      p.nodes.push_back(n);
    }
  }
};

Status set_traces(std::vector<std::unique_ptr<RankTrace>>& ranks, bool on) {
  for (const auto& r : ranks) {
    if (on) r->trace.start();
    RETURN_IF_ERROR(r->engine.set_trace(on ? &r->trace : nullptr));
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<RankProfile>> profile_ranks(std::span<engine::Engine* const> ranks, const ProfileOptions& options) {
  engine::Engine& front = *ranks[0];
  RETURN_IF_ERROR(check(front, options));
  Batch batch(front, options);
  RETURN_IF_ERROR(batch.prepare());
  for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(batch.step());  // memory is touched, threads are awake
  std::vector<std::unique_ptr<RankTrace>> traces;
  for (engine::Engine* e : ranks) {
    const engine::StepRunner* runner = e->runner(options.phase);
    if (!runner || !runner->last_program()) return error(Code::Unsupported, "this engine has no graphs to time");
    const CompiledModel& model = *runner->last_program();
    // A thunk is at most two waits and two kernels, and each piece may be a replay of its own.
    traces.emplace_back(new RankTrace{*e, model, Trace(e->device().info().threads, 5 * model.launches() + 64)});
  }
  Trace& clock = traces[0]->trace;
  std::vector<double> plain, timed;
  std::vector<std::pair<int64_t, int64_t>> borders;
  for (int64_t r = 0; r < options.repeat; ++r) {
    // In turn, so that a change of the machine's speed hits both.
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(batch.step());
    plain.push_back(seconds_since(begin));
    RETURN_IF_ERROR(set_traces(traces, true));
    const int64_t from = clock.now();
    const Status done = batch.step();
    const int64_t to = clock.now();
    RETURN_IF_ERROR(set_traces(traces, false));
    RETURN_IF_ERROR(done);
    timed.push_back(static_cast<double>(to - from) * 1e-9);
    borders.emplace_back(from, to);
    for (const auto& t : traces) {
      if (t->trace.dropped()) return error(Code::Internal, "{} events of a step found no room", t->trace.dropped());
      t->take(clock);
    }
  }
  const double middle = median(timed);
  const size_t shown = static_cast<size_t>(std::find(timed.begin(), timed.end(), middle) - timed.begin());
  std::vector<RankProfile> out;
  for (const auto& t : traces) {
    RankProfile& one = out.emplace_back();
    one.rank = static_cast<int>(out.size()) - 1;
    one.model = &t->model;
    StepProfile& p = one.profile;
    p.options = options;
    p.sizes = sizes_of(front, options);
    p.tracks = t->trace.tracks();
    p.step_s = median(plain);
    p.timed_step_s = middle;
    p.begin_ns = borders[shown].first;
    p.end_ns = borders[shown].second;
    t->fill(p, shown);
  }
  return out;
}

Result<StepProfile> profile_step(engine::Engine& e, const ProfileOptions& options) {
  engine::Engine* const one[] = {&e};
  ASSIGN_OR_RETURN(auto ranks, profile_ranks(one, options));
  return std::move(ranks[0].profile);
}

std::vector<OpTime> by_op(const StepProfile& p, const CompiledModel& model) {
  std::map<std::string, OpTime> ops;
  for (const NodeTime& n : p.nodes) {
    OpTime& o = ops[model.node(n.node)->op->name];
    ++o.count;
    o.busy_s += n.busy_s;
    o.wait_s += n.wait_s;
    o.span_s += n.span_s;
    o.meet_s += n.meet_s;
    o.collective = model.node(n.node)->op->has(op_trait::kCollective);
    o.bytes += n.cost.bytes();
    o.flops += n.cost.flops;
    o.limit_s += n.cost.limit_s(p.machine);
    o.has_limit = o.has_limit || n.cost.has_limit();
  }
  std::vector<OpTime> out;
  const bool holds = p.warning().empty();
  for (auto& [op, o] : ops) {
    o.op = op;
    if (holds && o.has_limit && o.span_s > 0) o.share = 100 * o.limit_s / o.span_s;
    out.push_back(o);
  }
  std::sort(out.begin(), out.end(), [](auto& a, auto& b) { return a.busy_s + a.wait_s > b.busy_s + b.wait_s; });
  return out;
}

}  // namespace reprise::see
