#include "compile/recording.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace reprise {
namespace {

class Recording {
 public:
  Recording(std::span<const Thunk> thunks, const std::vector<const Node*>& nodes) : thunks_(thunks), nodes_(nodes) {
    for (uint32_t i = 0; i < thunks.size(); ++i) place_[node(i)] = i;
    for (uint32_t i = 0; i < thunks.size(); ++i) {
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
    for (uint32_t i = 0; i < thunks_.size(); ++i) {
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
  std::unordered_map<const Node*, uint32_t> place_;
  std::unordered_set<const Node*> waited_for_, joined_;  // joined: waited for by the main stream
  std::unordered_set<uint8_t> begun_, from_beginning_;
  std::unordered_map<uint8_t, uint32_t> last_;
  std::vector<RecordingStep> out_;
};

}  // namespace

std::vector<RecordingStep> recording_of(std::span<const Thunk> thunks, const std::vector<const Node*>& nodes,
                                        bool one_stream) {
  // What runs beside nothing needs no stream of its own.
  const auto on_main = [&](const Thunk& t) { return nodes[t.node]->stream == kMainStream; };
  const bool all = std::all_of(thunks.begin(), thunks.end(), on_main);
  if (!one_stream && !all && std::any_of(thunks.begin(), thunks.end(), on_main))
    return Recording(thunks, nodes).steps();
  std::vector<RecordingStep> steps;
  for (uint32_t i = 0; i < thunks.size(); ++i) steps.push_back({RecordingStep::Kind::Launch, kMainStream, i});
  return steps;
}

}  // namespace reprise
