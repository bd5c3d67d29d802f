#include "graph/streams.h"

#include <algorithm>

#include "ops/mutation.h"

namespace reprise {
namespace {

void join(StreamClock& clock, const StreamClock& other) {
  for (size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
}

// The launches that the next one to touch a storage has to follow.
struct LastTouches {
  Node* write = nullptr;
  std::vector<Node*> reads;  // since then
};

}  // namespace

std::vector<StorageTouch> storage_touches(const Node& n) {
  std::vector<StorageTouch> out;
  if (!n.is_launched()) return out;
  const auto add = [&](const Value* v, bool write) {
    const Value* root = storage_root(v);
    if (!root->def->is_param()) out.push_back({root, write});
  };
  const std::vector<size_t> written = mutated_operands(*n.op);
  for (size_t i = 0; i < n.in.size(); ++i) add(n.in[i], std::find(written.begin(), written.end(), i) != written.end());
  for (auto& v : n.out) add(v.get(), true);
  return out;
}

bool has_side_streams(const Graph& graph) {
  for (const Node* n = graph.first(); n; n = n->next)
    if (n->stream != kMainStream) return true;
  return false;
}

StreamClocks::StreamClocks(const Graph& graph, bool one_stream) {
  std::array<StreamClock, kMaxGraphStreams> end;
  for (StreamClock& clock : end) clock.fill(-1);
  int64_t number = 0;
  for (const Node* n = graph.first(); n; n = n->next, ++number) {
    const uint8_t stream = one_stream ? kMainStream : n->stream;
    StreamClock& own = end[stream];
    own[stream] = number - 1;
    for (const Node* w : n->waits) join(own, after(w));
    at_[n] = {number, stream, own};
    own[stream] = number;
  }
}

StreamClock StreamClocks::after(const Node* node) const {
  const At& at = at_.at(node);
  StreamClock clock = at.before;
  clock[at.stream] = at.number;
  return clock;
}

void set_waits(Graph& graph) {
  std::unordered_map<const Value*, LastTouches> touched;
  std::unordered_map<const Node*, std::pair<int64_t, StreamClock>> done;  // its number, and what is done with it
  std::array<StreamClock, kMaxGraphStreams> end;
  for (StreamClock& clock : end) clock.fill(-1);
  int64_t number = 0;
  for (Node* n = graph.first(); n; n = n->next, ++number) {
    n->waits.clear();
    StreamClock& own = end[n->stream];
    own[n->stream] = number - 1;
    std::vector<Node*> behind;
    for (const StorageTouch& t : storage_touches(*n)) {
      LastTouches& last = touched[t.root];
      if (last.write) behind.push_back(last.write);
      if (t.write) behind.insert(behind.end(), last.reads.begin(), last.reads.end());
    }
    // The latest first: what it waited for need not be waited for again.
    std::sort(behind.begin(), behind.end(), [&](Node* a, Node* b) { return done.at(a).first > done.at(b).first; });
    for (Node* b : behind) {
      if (b == n || done.at(b).first <= own[b->stream]) continue;
      n->waits.push_back(b);
      join(own, done.at(b).second);
    }
    own[n->stream] = number;
    done[n] = {number, own};
    for (const StorageTouch& t : storage_touches(*n)) {
      LastTouches& last = touched[t.root];
      if (t.write)
        last = {n, {}};
      else if (last.write != n)
        last.reads.push_back(n);
    }
  }
}

}  // namespace reprise
