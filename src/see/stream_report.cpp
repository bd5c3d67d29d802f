#include "see/stream_report.h"

#include <algorithm>

#include "graph/streams.h"

namespace reprise::see {
namespace {

using NodesInOrder = std::vector<const Node*>;

std::string ops_in(const NodesInOrder& launches) {
  std::vector<std::string_view> names;
  for (const Node* n : launches) names.push_back(n->op->name);
  return fmt::format("{}", fmt::join(names, " "));
}

// One fork after the other; `open` are the side launches that nothing has waited for.
class Forks {
 public:
  explicit Forks(const Graph& graph) {
    for (const Node* n = graph.first(); n; n = n->next) {
      if (!n->is_launched()) continue;
      if (n->is_hint()) continue;
      if (n->stream != kMainStream) {
        if (side_.empty()) begin_ = n->waits.empty() ? graph.first() : n->waits.front()->next;
        side_.push_back(n);
      } else if (!side_.empty() && std::find(n->waits.begin(), n->waits.end(), side_.back()) != n->waits.end()) {
        close(n);
      }
    }
    if (!side_.empty()) close(nullptr);
  }
  std::vector<StreamFork> take() { return std::move(forks_); }

 private:
  void close(const Node* join) {
    NodesInOrder main;
    for (const Node* n = begin_; n && n != join; n = n->next)
      if (n->is_launched() && n->stream == kMainStream) main.push_back(n);
    const StreamFork fork{ops_in(side_), ops_in(main), join ? join->op->name : "the end"};
    const auto known = std::find_if(forks_.begin(), forks_.end(), [&](const StreamFork& f) {
      return f.side == fork.side && f.beside == fork.beside && f.join == fork.join;
    });
    if (known == forks_.end())
      forks_.push_back(fork);
    else
      ++known->count;
    side_.clear();
  }

  NodesInOrder side_;
  const Node* begin_ = nullptr;  // the first that may run beside them
  std::vector<StreamFork> forks_;
};

// The first launch behind a hint that reads what it is ahead of.
const Node* reader_of(const Node& hint) {
  for (const Node* n = hint.next; n; n = n->next)
    if (!n->is_hint() && std::find(n->in.begin(), n->in.end(), hint.in[0]) != n->in.end()) return n;
  return nullptr;
}

// Those that captures have: hint and product in one piece (compile/recording.h).
std::vector<StreamPrefetch> prefetches_of(const CompiledModel& m) {
  std::unordered_map<const Node*, const Piece*> piece_of;
  for (const Piece& p : m.pieces())
    for (const Thunk& t : p.thunks) piece_of[m.node(t.node)] = &p;
  std::vector<StreamPrefetch> out;
  for (const Node* n = m.graph().first(); n; n = n->next) {
    if (!n->is_hint()) continue;
    const Node* product = reader_of(*n);
    if (!product || piece_of.at(n) != piece_of.at(product) || !piece_of.at(n)->captured) continue;
    StreamPrefetch p;
    for (; n && (n->is_hint() || n->is_source()); n = n->next)  // those with it, and what they read
      if (n->is_hint()) p.bytes += n->attrs.integer("bytes"), p.rows = n->attrs.integer("rows");
    NodesInOrder beside;
    for (const Node* b = n; b && b != product; b = b->next)
      if (b->is_launched() && b->stream == kMainStream) beside.push_back(b);
    p.beside = ops_in(beside);
    p.ahead_of = product->op->name;
    const auto known = std::find_if(out.begin(), out.end(), [&](const StreamPrefetch& o) {
      return o.bytes == p.bytes && o.rows == p.rows && o.beside == p.beside && o.ahead_of == p.ahead_of;
    });
    if (known == out.end())
      out.push_back(std::move(p));
    else
      ++known->count;
    if (!n) break;
    n = n->prev;
  }
  return out;
}

std::string prefetch_text(const StreamReport& r) {
  std::string out =
      fmt::format("prefetch  {:.2f} MB of weights in a step\n", static_cast<double>(r.prefetched_bytes) / 1e6);
  for (const StreamPrefetch& p : r.prefetches)
    out +=
        fmt::format("{:>5} x   {:.2f} MB{}\n   beside {}\n   until  {}\n", p.count, static_cast<double>(p.bytes) / 1e6,
                    p.rows > 0 ? fmt::format(", in steps of up to {} rows", p.rows) : "", p.beside, p.ahead_of);
  return out;
}

std::string_view streams_name(RecordedStreams streams) {
  switch (streams) {
    case RecordedStreams::All: return "several streams";
    case RecordedStreams::NoHints: return "nothing read ahead";
    case RecordedStreams::One: return "one stream";
  }
  return "";
}

std::string times_text(const CompiledModel::StreamTimes& t) {
  std::string out = fmt::format("size {:>5}   {}: a replay took {:.1f} us with several", t.size,
                                streams_name(t.streams), t.several_us);
  if (t.plain_us > 0)
    out += fmt::format("{} {:.1f} us with nothing read ahead", t.one_us > 0 ? "," : " and", t.plain_us);
  if (t.one_us > 0) out += fmt::format(" and {:.1f} us with one", t.one_us);
  return out + "\n";
}

}  // namespace

std::optional<StreamReport> stream_report(const CompiledModel& m) {
  if (!has_side_streams(m.graph())) return std::nullopt;
  StreamReport r;
  r.forks = Forks(m.graph()).take();
  for (const Node* n = m.graph().first(); n; n = n->next) {
    r.side_launches += n->stream == kSideStream ? 1 : 0;
    r.waits += static_cast<int>(n->waits.size());
  }
  r.prefetches = prefetches_of(m);
  for (const StreamPrefetch& p : r.prefetches) r.prefetched_bytes += p.bytes * p.count;
  std::unordered_map<const Node*, size_t> workspace;
  for (const auto& [node, index] : m.plan().workspace_of) workspace[node] = m.plan().storages[index].bytes;
  r.arena_bytes = m.plan().arena_bytes;
  r.one_stream_arena_bytes = plan_memory(m.graph(), workspace, true).arena_bytes;
  r.one_stream_reason = m.one_stream_reason();
  r.measured = m.stream_times();
  return r;
}

std::string stream_text(const StreamReport& r) {
  std::string out;
  if (r.side_launches > 0)
    out +=
        fmt::format("streams   {} launches on the side stream, {} waits, {:.2f} MB planned ({:.2f} MB on one stream)\n",
                    r.side_launches, r.waits, static_cast<double>(r.arena_bytes) / 1e6,
                    static_cast<double>(r.one_stream_arena_bytes) / 1e6);
  for (const StreamFork& f : r.forks)
    out += fmt::format("{:>5} x   {}\n   beside {}\n   until  {}\n", f.count, f.side, f.beside, f.join);
  if (!r.prefetches.empty()) out += prefetch_text(r);
  for (const CompiledModel::StreamTimes& t : r.measured) out += times_text(t);
  if (!r.one_stream_reason.empty()) out += fmt::format("captured on one stream: {}\n", r.one_stream_reason);
  return out;
}

OrderedJson stream_json(const StreamReport& r) {
  OrderedJson j{{"side_launches", r.side_launches},
                {"waits", r.waits},
                {"planned_bytes", r.arena_bytes},
                {"one_stream_planned_bytes", r.one_stream_arena_bytes},
                {"forks", OrderedJson::array()}};
  for (const StreamFork& f : r.forks)
    j["forks"].push_back({{"count", f.count}, {"side", f.side}, {"beside", f.beside}, {"join", f.join}});
  if (!r.prefetches.empty()) j["prefetched_bytes"] = r.prefetched_bytes;
  for (const StreamPrefetch& p : r.prefetches) {
    OrderedJson one{{"count", p.count}, {"bytes", p.bytes}, {"beside", p.beside}, {"ahead_of", p.ahead_of}};
    if (p.rows > 0) one["rows"] = p.rows;
    j["prefetches"].push_back(std::move(one));
  }
  for (const CompiledModel::StreamTimes& t : r.measured) {
    OrderedJson one{{"size", t.size}, {"several", t.streams != RecordedStreams::One}, {"several_us", t.several_us}};
    if (t.plain_us > 0) one["read_ahead"] = t.streams == RecordedStreams::All, one["plain_us"] = t.plain_us;
    if (t.one_us > 0) one["one_us"] = t.one_us;
    j["measured"].push_back(std::move(one));
  }
  if (!r.one_stream_reason.empty()) j["one_stream_reason"] = r.one_stream_reason;
  return j;
}

}  // namespace reprise::see
