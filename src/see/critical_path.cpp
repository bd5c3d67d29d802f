#include "see/critical_path.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "ops/mutation.h"

namespace reprise::see {
namespace {

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Walks from the end of the step to its begin.
class Backwards {
 public:
  Backwards(const StepProfile& p, CriticalPath& path)
      : p_(p), path_(path), tracks_(static_cast<size_t>(std::max(p.tracks, 1))) {
    for (size_t i = 0; i < p.events.size(); ++i) {
      const auto track = static_cast<size_t>(p.events[i].track);
      tracks_[track].push_back(i);
      if (p.events[i].event.kind == TraceEvent::Kind::Wait) met_[barrier_of(p.events[i].event)].push_back(track);
    }
    for (size_t t = 0; t < tracks_.size(); ++t) all_.push_back(t);
    for (auto& track : tracks_)
      std::stable_sort(track.begin(), track.end(), [&](size_t a, size_t b) { return begin_of(a) < begin_of(b); });
  }

  void walk() {
    const auto last = std::max_element(p_.events.begin(), p_.events.end(),
                                       [](auto& a, auto& b) { return a.event.end_ns < b.event.end_ns; });
    if (last == p_.events.end()) {
      path_.host_s = seconds(p_.end_ns - p_.begin_ns);
      return;
    }
    track_ = static_cast<size_t>(last->track);
    time_ = last->event.end_ns;
    path_.host_s = seconds(p_.end_ns - time_);
    while (const auto number = last_before(track_, time_)) step_back(*number);
    path_.host_s += seconds(time_ - p_.begin_ns);
    std::reverse(path_.events.begin(), path_.events.end());
  }

 private:
  using Barrier = std::tuple<uint32_t, uint32_t, uint8_t>;
  static Barrier barrier_of(const TraceEvent& wait) { return {wait.replay, wait.node, wait.part}; }

  // The tracks that were at a barrier. Several streams have barriers of a part of the tracks, and what the others ran
  // meanwhile held no track up there; each track that takes part has a wait for the same part of the same launch. At
  // the end of a replay one waits for all.
  const std::vector<size_t>& met(const TraceEvent& wait) const {
    return wait.node == TraceEvent::kNoNode ? all_ : met_.at(barrier_of(wait));
  }

  int64_t begin_of(size_t number) const { return p_.events[number].event.begin_ns; }

  // The last event of the track that began before.
  std::optional<size_t> last_before(size_t track, int64_t time) const {
    const auto& events = tracks_[track];
    const auto it = std::partition_point(events.begin(), events.end(), [&](size_t i) { return begin_of(i) < time; });
    if (it == events.begin()) return std::nullopt;
    return *std::prev(it);
  }

  void step_back(size_t number) {
    const TraceEvent& e = p_.events[number].event;
    const int64_t end = std::min(e.end_ns, time_);
    path_.gap_s += seconds(time_ - end);
    time_ = end;
    if (e.kind == TraceEvent::Kind::Kernel) {
      path_.kernel_s += seconds(end - e.begin_ns);
      path_.events.push_back(number);
      time_ = e.begin_ns;
      return;
    }
    // Who came last: the kernel that ended last while this one waited, of another track that met it there. Where there
    // is none, the wait is what the barrier itself costs.
    int64_t latest = e.begin_ns;
    size_t from = track_;
    for (const size_t t : met(e)) {
      if (t == track_) continue;
      const std::optional<int64_t> ended = last_kernel_end(t, end);
      if (ended && *ended > latest) {
        latest = *ended;
        from = t;
      }
    }
    path_.barrier_s += seconds(end - latest);
    track_ = from;
    time_ = latest;
  }

  // When the last of the track's kernels that ended by `time` ended; waits of the track are passed over.
  std::optional<int64_t> last_kernel_end(size_t track, int64_t time) const {
    for (auto number = last_before(track, time); number; number = last_before(track, begin_of(*number))) {
      const TraceEvent& e = p_.events[*number].event;
      if (e.kind == TraceEvent::Kind::Kernel && e.end_ns <= time) return e.end_ns;
    }
    return std::nullopt;
  }

  const StepProfile& p_;
  CriticalPath& path_;
  std::vector<std::vector<size_t>> tracks_;  // numbers of events, by time
  std::vector<size_t> all_;                  // tracks
  std::map<Barrier, std::vector<size_t>> met_;
  size_t track_ = 0;
  int64_t time_ = 0;
};

struct Dependence {
  const Node* node = nullptr;
  std::vector<const Node*> before;
};

// Every node with those that must have run before it: the makers of its operands, and where it writes an operand in
// place also everything that read the old contents.
std::vector<Dependence> dependences(const Graph& graph) {
  std::vector<Dependence> out;
  std::unordered_map<const Value*, std::vector<const Node*>> readers;  // by storage
  for (const Node* n = graph.first(); n; n = n->next) {
    Dependence d{n, {}};
    for (const Value* v : n->in) d.before.push_back(v->def);
    for (const size_t i : mutated_operands(*n->op)) {
      auto& read = readers[storage_root(n->in[i])];
      d.before.insert(d.before.end(), read.begin(), read.end());
      read.clear();
    }
    for (const Value* v : n->in) readers[storage_root(v)].push_back(n);
    out.push_back(std::move(d));
  }
  return out;
}

void find_chain(const StepProfile& p, const CompiledModel& model, CriticalPath& path) {
  std::unordered_map<const Node*, const NodeTime*> timed;
  for (const NodeTime& t : p.nodes) timed[model.node(t.node)] = &t;
  const auto span = [&](const Node* n) {
    const auto it = timed.find(n);
    return it == timed.end() ? 0.0 : it->second->span_s;
  };
  const std::vector<Dependence> nodes = dependences(model.graph());
  // The longest row up to the end of a node, the node before it there, and the longest from its begin on.
  std::unordered_map<const Node*, double> until, onward;
  std::unordered_map<const Node*, const Node*> previous;
  const Node* end = nullptr;
  for (const Dependence& d : nodes) {
    double begin = 0;
    const Node*& late = previous[d.node];
    for (const Node* b : d.before)
      if (!late || until.at(b) > begin) {
        begin = until.at(b);
        late = b;
      }
    until[d.node] = begin + span(d.node);
    if (!end || until[d.node] > until[end]) end = d.node;
  }
  if (!end) return;
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    const double row = onward[it->node] += span(it->node);
    for (const Node* b : it->before) onward[b] = std::max(onward[b], row);
  }
  path.chain_s = until[end];
  for (const Node* n = end; n; n = previous.at(n))
    if (const auto it = timed.find(n); it != timed.end()) path.chain.push_back(it->second->node);
  std::reverse(path.chain.begin(), path.chain.end());
  for (const NodeTime& t : p.nodes) {
    const Node* n = model.node(t.node);
    path.launches_s += t.span_s;
    path.slack_s.push_back(std::max(0.0, path.chain_s - (until.at(n) + onward.at(n) - t.span_s)));
  }
}

std::string longest_ops(const CriticalPath& path) {
  constexpr size_t kShown = 4;
  std::string out;
  for (size_t i = 0; i < std::min(kShown, path.ops.size()); ++i)
    out += fmt::format("{}{} {:.1f}", i ? ", " : "", path.ops[i].op, path.ops[i].seconds * 1e6);
  return out;
}

}  // namespace

CriticalPath critical_path(const StepProfile& p, const CompiledModel& model) {
  CriticalPath path;
  Backwards(p, path).walk();
  std::map<std::string, OpOnPath> ops;
  for (const size_t i : path.events) {
    const TraceEvent& e = p.events[i].event;
    OpOnPath& o = ops[model.node(e.node)->op->name];
    ++o.events;
    o.seconds += seconds(e.end_ns - e.begin_ns);
  }
  for (auto& [op, o] : ops) {
    o.op = op;
    path.ops.push_back(o);
  }
  std::stable_sort(path.ops.begin(), path.ops.end(), [](auto& a, auto& b) { return a.seconds > b.seconds; });
  find_chain(p, model, path);
  return path;
}

std::string path_text(const CriticalPath& path) {
  return fmt::format(
      "critical path, us: {:.1f} in kernels ({}), {:.1f} at barriers, {:.1f} between events, {:.1f} outside replays\n"
      "longest chain by data: {} of {} launches, {:.1f} us of {:.1f}; the others could run beside it\n",
      path.kernel_s * 1e6, longest_ops(path), path.barrier_s * 1e6, path.gap_s * 1e6, path.host_s * 1e6,
      path.chain.size(), path.slack_s.size(), path.chain_s * 1e6, path.launches_s * 1e6);
}

OrderedJson path_json(const CriticalPath& path, const CompiledModel& model) {
  OrderedJson ops = OrderedJson::array(), chain = OrderedJson::array();
  for (const OpOnPath& o : path.ops) ops.push_back({{"op", o.op}, {"events", o.events}, {"us", o.seconds * 1e6}});
  for (const uint32_t n : path.chain)
    if (const Node& node = *model.node(n); !node.out.empty()) chain.push_back(node.result()->id);
  return {{"kernel_us", path.kernel_s * 1e6},
          {"barrier_us", path.barrier_s * 1e6},
          {"gap_us", path.gap_s * 1e6},
          {"host_us", path.host_s * 1e6},
          {"ops", std::move(ops)},
          {"chain_us", path.chain_s * 1e6},
          {"launches_us", path.launches_s * 1e6},
          {"chain", std::move(chain)}};
}

}  // namespace reprise::see
