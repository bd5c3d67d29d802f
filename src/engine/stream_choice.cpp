#include "engine/stream_choice.h"

#include <algorithm>
#include <limits>

#include "engine/step_stage.h"

namespace reprise::engine {
namespace {

// The shortest of a few; the first one warms up.
Result<double> replay_us(CompiledModel& model, int64_t size, const LiveSizes& live, Stream& stream) {
  const Device& device = model.device();
  const int runs = device.clock_us() ? 1 : 5;  // a model of time says the same each time
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i <= runs; ++i) {
    const double begin = now_us(device);
    RETURN_IF_ERROR(model.replay(size, live, stream, head_of(StepOutput::Logits)));
    RETURN_IF_ERROR(stream.synchronize());
    if (i > 0) best = std::min(best, now_us(device) - begin);
  }
  return best;
}

// What captures of so many rows have beside the main stream.
struct Streams {
  bool side = false, hints = false;
};

Streams streams_in(const Graph& graph, int64_t rows) {
  Streams s;
  for (const Node* n = graph.first(); n; n = n->next) {
    s.side |= n->stream == kSideStream;
    if (n->is_hint()) s.hints |= n->attrs.integer("rows") == 0 || n->attrs.integer("rows") >= rows;
  }
  return s;
}

// Tokens that differ, for as long as this lives.
class SomeTokens {
 public:
  SomeTokens(const Staging& staging, int64_t count, int64_t vocab) {
    const auto view = staging.input(models::kTokensInput, staging.selected());
    if (!view.is_ok() || vocab < 1) return;
    tokens_ = models::ints(*view);
    tokens_ = tokens_.first(std::min(tokens_.size(), static_cast<size_t>(count)));
    int64_t token = 0;
    for (int32_t& t : tokens_) t = static_cast<int32_t>((token += 7919) % vocab);
  }
  SomeTokens(const SomeTokens&) = delete;
  SomeTokens& operator=(const SomeTokens&) = delete;
  ~SomeTokens() { std::fill(tokens_.begin(), tokens_.end(), 0); }

 private:
  std::span<int32_t> tokens_;
};

}  // namespace

Status capture_as_measured(CompiledModel& model, int64_t size, const LiveSizes& live, Stream& stream, Staging& staging,
                           int64_t vocab, bool one) {
  const CompiledModel::StreamTimes* known = model.stream_times_of(size);
  const Streams has = streams_in(model.graph(), size);
  one &= has.side;
  if (!model.has_streams() || (!one && !has.hints) || (known && known->size < 2 * size))
    return model.capture(size, live);
  const SomeTokens tokens(staging, live.value[models::kTokens], vocab);
  CompiledModel::StreamTimes times;
  times.size = size;
  // What was not measured to its end is no measurement for smaller sizes.
  const auto measure = [&](RecordedStreams streams) -> Result<double> {
    times.streams = streams;
    model.set_stream_times(times);
    const Status captured = model.capture(size, live);
    auto us = captured.is_ok() ? replay_us(model, size, live, stream) : Result<double>(captured);
    if (!us.is_ok()) model.drop_capture(size);
    return us;
  };
  ASSIGN_OR_RETURN(times.several_us, measure(RecordedStreams::All));
  RecordedStreams best = RecordedStreams::All;
  double best_us = times.several_us;
  if (has.hints) {
    ASSIGN_OR_RETURN(times.plain_us, measure(RecordedStreams::NoHints));
    if (times.plain_us < best_us) best = RecordedStreams::NoHints, best_us = times.plain_us;
  }
  if (one) {
    ASSIGN_OR_RETURN(times.one_us, measure(RecordedStreams::One));
    if (best_us > (1 - kStreamsGain) * times.one_us) best = RecordedStreams::One;
  }
  const bool captured = times.streams == best;
  times.streams = best;
  model.set_stream_times(times);
  return captured ? Status::ok() : model.capture(size, live);
}

}  // namespace reprise::engine
