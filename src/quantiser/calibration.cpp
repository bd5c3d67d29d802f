#include "quantiser/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "passes/house_passes.h"

namespace reprise::quantiser {
namespace {

float element(const TensorView& v, int64_t i) {
  switch (v.dtype) {
    case DType::F32: return static_cast<const float*>(v.data)[i];
    case DType::BF16: return bf16_to_float(static_cast<const uint16_t*>(v.data)[i]);
    default: return half_to_float(static_cast<const uint16_t*>(v.data)[i]);
  }
}

class Observer {
 public:
  Observer(const ObserveOptions& options, int64_t total)
      : samples_(options.samples), stride_(std::max<int64_t>(1, total / std::max<int64_t>(1, options.samples))) {}

  // The rows of one step, the first of which is token `first` of the text.
  Status add(const std::string& weight, const TensorView& x, int64_t first) {
    if (!is_float(x.dtype) || x.rank != 2) return error(Code::Internal, "{} reads something that is no matrix", weight);
    const int64_t rows = x.size[0], width = x.size[1];
    InputStatistics& s = seen_[weight];
    if (s.low.empty()) {
      s.low.assign(static_cast<size_t>(width), std::numeric_limits<float>::max());
      s.high.assign(static_cast<size_t>(width), std::numeric_limits<float>::lowest());
    }
    row_.resize(static_cast<size_t>(width));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < width; ++k) {
        const float v = element(x, r * width + k);
        const auto i = static_cast<size_t>(k);
        if (!std::isfinite(v)) return error(Code::Internal, "the input of {} is not finite", weight);
        row_[i] = v;
        s.low[i] = std::min(s.low[i], v);
        s.high[i] = std::max(s.high[i], v);
      }
      // The head reads one row of a step; the others one for every token.
      if (s.samples < samples_ && (rows == 1 || (first + r) % stride_ == 0)) {
        s.sample.insert(s.sample.end(), row_.begin(), row_.end());
        ++s.samples;
      }
    }
    return Status::ok();
  }

  InputObservations take() { return std::move(seen_); }

 private:
  int64_t samples_, stride_;
  InputObservations seen_;
  std::vector<float> row_;
};

}  // namespace

Result<InputObservations> observe_inputs(engine::Engine& engine, std::span<const int32_t> tokens,
                                         const ObserveOptions& options,
                                         const std::function<void(int64_t, int64_t)>& progress) {
  const int64_t most = std::min(engine.context_length(), engine.max_step_tokens());
  if (options.window < 1 || options.window > most)
    return invalid("a window of {} tokens; allowed: 1 to {}", options.window, most);
  if (tokens.empty()) return invalid("the text for calibration has no tokens");
  const int64_t total = std::min<int64_t>(options.max_tokens, static_cast<int64_t>(tokens.size()));
  Observer observer(options, total);
  for (int64_t first = 0; first < total; first += options.window) {
    const int64_t count = std::min(options.window, total - first);
    const auto part = tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    engine::Sequence sequence(std::vector<int32_t>(part.begin(), part.end()));
    RETURN_IF_ERROR(engine.reserve(sequence, count));
    const engine::StepItem item{&sequence, count, 1};
    const auto logits = engine.step({&item, 1});
    engine.release(sequence);
    RETURN_IF_ERROR(logits.status());
    int64_t observed = 0;
    for (const std::string& name : engine.output_names()) {
      if (!name.starts_with(kObserved)) continue;
      ASSIGN_OR_RETURN(const TensorView x, engine.output(name));
      RETURN_IF_ERROR(observer.add(name.substr(kObserved.size()), x, first));
      ++observed;
    }
    if (observed == 0) return error(Code::Internal, "the engine was not opened to observe its linears");
    if (progress) progress(first + count, total);
  }
  return observer.take();
}

}  // namespace reprise::quantiser
