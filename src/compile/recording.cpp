#include "compile/recording.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace reprise {
namespace {

class Recording {
 public:
  Recording(std::span<const Thunk> thunks, const std::vector<const Node*>& nodes, const std::vector<uint32_t>& kept)
      : thunks_(thunks), nodes_(nodes), kept_(kept) {
    for (const uint32_t i : kept) place_[node(i)] = i;
    for (const uint32_t i : kept) {
      const uint8_t stream = node(i)->stream;
      const bool first = begun_.insert(stream).second;
      bool waits = false;
      for (const Node* w : node(i)->waits)
        if (place_.contains(w)) {
          waits = true;
          waited_for_.insert(w);
          if (stream == kMainStream) joined_.insert(w);
        }
      if (stream != kMainStream && first && !waits) from_beginning_.insert(stream);
      last_[stream] = i;
    }
  }

  std::vector<RecordingStep> steps() {
    if (!from_beginning_.empty()) add(Kind::Record, kMainStream, kBeginning);
    for (const uint8_t stream : from_beginning_) add(Kind::Wait, stream, kBeginning);
    for (const uint32_t i : kept_) {
      const uint8_t stream = node(i)->stream;
      for (const Node* w : node(i)->waits)
        if (auto it = place_.find(w); it != place_.end()) add(Kind::Wait, stream, mark(it->second));
      add(Kind::Launch, stream, i);
      if (waited_for_.contains(node(i))) add(Kind::Record, stream, mark(i));
    }
    for (const auto& [stream, i] : last_) {
      if (stream == kMainStream || joined_.contains(node(i))) continue;
      if (!waited_for_.contains(node(i))) add(Kind::Record, stream, mark(i));
      add(Kind::Wait, kMainStream, mark(i));
    }
    return std::move(out_);
  }

 private:
  using Kind = RecordingStep::Kind;
  static constexpr uint32_t kBeginning = 0;

  static uint32_t mark(uint32_t launch) { return launch + 1; }
  const Node* node(uint32_t i) const { return nodes_[thunks_[i].node]; }
  void add(Kind kind, uint8_t stream, uint32_t number) { out_.push_back({kind, stream, number}); }

  std::span<const Thunk> thunks_;
  const std::vector<const Node*>& nodes_;
  const std::vector<uint32_t>& kept_;  // launches of the piece
  std::unordered_map<const Node*, uint32_t> place_;
  std::unordered_set<const Node*> waited_for_, joined_;  // joined: waited for by the main stream
  std::unordered_set<uint8_t> begun_, from_beginning_;
  std::unordered_map<uint8_t, uint32_t> last_;
  std::vector<RecordingStep> out_;
};

// All but hints that nothing in the piece is behind or that are for fewer rows; without hints all but those.
std::vector<uint32_t> kept_of(std::span<const Thunk> thunks, const std::vector<const Node*>& nodes, bool hints,
                              int64_t rows) {
  std::vector<uint32_t> kept;
  std::unordered_set<const Value*> read_later;
  for (auto i = static_cast<uint32_t>(thunks.size()); i-- > 0;) {
    const Node& n = *nodes[thunks[i].node];
    if (n.is_hint()) {
      const int64_t most = n.attrs.integer("rows");
      if (!hints || (most > 0 && most < rows) || !read_later.contains(n.in[0])) continue;
    }
    if (!n.is_hint()) read_later.insert(n.in.begin(), n.in.end());
    kept.push_back(i);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

std::vector<RecordingStep> recording_of(std::span<const Thunk> thunks, const std::vector<const Node*>& nodes,
                                        RecordedStreams streams, int64_t rows) {
  const std::vector<uint32_t> kept = kept_of(thunks, nodes, streams == RecordedStreams::All, rows);
  // What runs beside nothing needs no stream of its own.
  const auto on_main = [&](uint32_t i) { return nodes[thunks[i].node]->stream == kMainStream; };
  const bool all = std::all_of(kept.begin(), kept.end(), on_main);
  if (streams != RecordedStreams::One && !all && std::any_of(kept.begin(), kept.end(), on_main))
    return Recording(thunks, nodes, kept).steps();
  std::vector<RecordingStep> steps;
  for (const uint32_t i : kept) steps.push_back({RecordingStep::Kind::Launch, kMainStream, i});
  return steps;
}

}  // namespace reprise
