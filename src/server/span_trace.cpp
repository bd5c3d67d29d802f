#include "server/span_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/json.h"

namespace reprise::server {
namespace {

using sched::FinishReason;
using sched::RequestId;
using sched::RequestResult;

// The two groups of tracks.
constexpr int kSteps = 1, kRequests = 2;

const char* reason_of(FinishReason reason) {
  return reason == FinishReason::Stop ? "stop" : reason == FinishReason::Length ? "length" : "abort";
}

// Writes events one by one; times are microseconds since `zero`.
class EventWriter {
 public:
  explicit EventWriter(sched::Clock::time_point zero) : zero_(zero) {}

  double us(sched::Clock::time_point t) const { return std::chrono::duration<double, std::micro>(t - zero_).count(); }
  void span(int group, uint64_t track, const char* name, sched::Clock::time_point begin, double length_us,
            const OrderedJson& args) {
    // A request may have come before the recording began.
    const double from = std::max(0.0, us(begin)), to = std::max(from, us(begin) + length_us);
    event(R"("ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":"{}","args":{})", group, track, from, to - from,
          name, text(args));
  }
  void span(int group, uint64_t track, const char* name, sched::Clock::time_point begin, sched::Clock::time_point end,
            const OrderedJson& args = OrderedJson::object()) {
    span(group, track, name, begin, us(end) - us(begin), args);
  }
  void instant(int group, uint64_t track, const char* name, sched::Clock::time_point when, const OrderedJson& args) {
    event(R"("ph":"i","s":"t","pid":{},"tid":{},"ts":{:.3f},"name":"{}","args":{})", group, track,
          std::max(0.0, us(when)), name, text(args));
  }
  void name_group(int group, const char* name) {
    event(R"("ph":"M","pid":{},"name":"process_name","args":{})", group, text({{"name", name}}));
  }
  void name_track(int group, uint64_t track, const std::string& name) {
    event(R"("ph":"M","pid":{},"tid":{},"name":"thread_name","args":{})", group, track, text({{"name", name}}));
  }
  std::string take(uint64_t dropped) {
    return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped_spans\":{}}},\"traceEvents\":[{}\n]}}\n",
                       dropped, out_);
  }

 private:
  template <typename... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    out_ += out_.empty() ? "\n{" : ",\n{";
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '}';
  }
  static std::string text(const OrderedJson& json) {
    return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  }

  sched::Clock::time_point zero_;
  std::string out_;
};

void write_request(EventWriter& out, const std::string& name, const RequestResult& r) {
  out.span(kRequests, r.id, "request", r.arrived, r.finished,
           {{"id", name},
            {"prompt_tokens", r.prompt_tokens},
            {"cached_tokens", r.cached_tokens},
            {"completion_tokens", r.completion_tokens},
            {"preemptions", r.preemptions}});
  out.span(kRequests, r.id, "queued", r.arrived, r.admitted.value_or(r.finished));
  if (r.first_token) out.instant(kRequests, r.id, "first token", *r.first_token, OrderedJson::object());
  OrderedJson end = {{"reason", reason_of(r.finish)}};
  if (!r.status.is_ok()) end["why"] = r.status.message();
  out.instant(kRequests, r.id, "finish", r.finished, end);
}

}  // namespace

void SpanTrace::start(int64_t steps, std::function<void()> full) {
  std::lock_guard lock(mutex_);
  zero_ = sched::Clock::now();
  steps_left_ = steps;
  full_ = std::move(full);
  completing_ = 0;
  before_.reset();
  graphs_.assign(1, "");
  spans_.clear();
  ended_.clear();
  dropped_ = 0;
  recording_ = true;
}

void SpanTrace::add(const Span& span) {
  spans_.push_back(span);
  if (spans_.size() <= limits_.spans) return;
  spans_.pop_front();
  ++dropped_;
}

uint32_t SpanTrace::name_of_graphs(const GraphNumbers& before, const GraphNumbers& now) {
  std::string name;
  const auto say = [&](const std::string& what) { name += (name.empty() ? "" : ", ") + what; };
  for (size_t i = 0; i < now.phases.size() && i < before.phases.size(); ++i) {
    const GraphPhase &b = before.phases[i], &n = now.phases[i];
    for (const auto& [size, count] : n.replays) {
      const auto was = b.replays.find(size);
      if (count > (was == b.replays.end() ? 0 : was->second)) say(fmt::format("{} {} {}", n.phase, n.mode, size));
    }
    for (const auto& [reason, count] : n.fallbacks) {
      const auto was = b.fallbacks.find(reason);
      if (count > (was == b.fallbacks.end() ? 0 : was->second)) say(fmt::format("{} eager ({})", n.phase, reason));
    }
  }
  const auto known = std::find(graphs_.begin(), graphs_.end(), name);
  if (known != graphs_.end()) return static_cast<uint32_t>(known - graphs_.begin());
  graphs_.push_back(name);
  return static_cast<uint32_t>(graphs_.size() - 1);
}

void SpanTrace::completing() {
  if (!recording()) return;
  std::lock_guard lock(mutex_);
  if (recording()) ++completing_;
}

void SpanTrace::stepped(const sched::StepRecord& step) {
  if (!recording()) return;
  GraphNumbers now = graph_();
  std::function<void()> full;
  {
    std::lock_guard lock(mutex_);
    if (completing_ > 0) --completing_;
    completed_.notify_all();
    if (!recording()) return;
    Span span{step.begin,     step.end,       0, step.decode_tokens, step.prefill_tokens, step.sequences,
              step.forming_s, step.overlap_s, 0};
    // What was before the first step is not known.
    if (before_) span.graph = name_of_graphs(*before_, now);
    before_ = std::move(now);
    add(span);
    const auto formed =
        step.begin + std::chrono::duration_cast<sched::Clock::duration>(std::chrono::duration<double>(step.forming_s));
    for (const sched::StepPart& p : step.parts)
      add({formed, step.end, p.request, p.decodes ? p.tokens : 0, p.decodes ? 0 : p.tokens, 0, 0, 0, 0});
    if (steps_left_ > 0 && --steps_left_ == 0) {
      recording_ = false;
      full = std::exchange(full_, nullptr);
    }
  }
  if (full) full();
}

void SpanTrace::finished(const sched::Request& request, const RequestResult& result) {
  if (!recording()) return;
  std::lock_guard lock(mutex_);
  if (!recording()) return;
  ended_.push_back({request.name, result});
  if (ended_.size() <= limits_.requests) return;
  ended_.pop_front();
  ++dropped_;
}

std::string SpanTrace::take() {
  std::deque<Span> spans;
  std::deque<Ended> ended;
  std::vector<std::string> graphs;
  uint64_t dropped = 0;
  Time zero;
  {
    std::unique_lock lock(mutex_);
    completed_.wait(lock, [this] { return completing_ == 0 || !recording(); });
    recording_ = false;
    full_ = nullptr;
    spans.swap(spans_);
    ended.swap(ended_);
    graphs.swap(graphs_);
    dropped = dropped_;
    zero = zero_;
  }
  EventWriter out(zero);
  out.name_group(kSteps, "steps");
  out.name_track(kSteps, 1, "scheduler");
  out.name_group(kRequests, "requests");
  std::map<RequestId, Time> ends;
  for (const Ended& e : ended) {
    ends[e.result.id] = e.result.finished;
    out.name_track(kRequests, e.result.id, e.name.empty() ? fmt::format("request {}", e.result.id) : e.name);
    write_request(out, e.name, e.result);
  }
  for (const Span& s : spans) {
    if (s.request != 0) {
      // A request ends when its last token is handed out, before the step is over.
      const auto [end, unknown] = ends.try_emplace(s.request, Time::max());
      if (unknown) out.name_track(kRequests, s.request, fmt::format("request {}", s.request));
      out.span(kRequests, s.request, s.decode_tokens > 0 ? "decode" : "prefill", s.begin, std::min(s.end, end->second),
               {{"tokens", s.decode_tokens + s.prefill_tokens}});
      continue;
    }
    OrderedJson args = {{"sequences", s.sequences},
                        {"decode_tokens", s.decode_tokens},
                        {"prefill_tokens", s.prefill_tokens},
                        {"forming_us", s.forming_s * 1e6}};
    if (s.overlap_s > 0) args["overlap_us"] = s.overlap_s * 1e6;
    if (s.graph != 0) args["graphs"] = graphs[s.graph];
    out.span(kSteps, 1, "step", s.begin, s.end, args);
    out.span(kSteps, 1, "forming", s.begin, s.forming_s * 1e6, OrderedJson::object());
  }
  return out.take(dropped);
}

}  // namespace reprise::server
