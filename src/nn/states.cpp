#include "nn/states.h"

#include <utility>

namespace reprise::nn {

Tensor continued(std::string_view op, Tensor& cache, std::vector<Tensor> others, const StepInputs& in, Attrs attrs) {
  others.insert(others.begin(), cache);
  for (const Tensor& t : {in.state_read, in.state_write, in.cu_seqlens}) others.push_back(t);
  if (!in.drafts.absent()) others.push_back(in.drafts);
  std::vector<Tensor> out = cache.tracer()->call(op, std::move(others), std::move(attrs));
  out.resize(2, out[0]);  // after an error
  cache = out[0];
  return out[1];
}

int64_t drafts_of_conv(const Tensor& cache, int64_t taps) { return cache.dim(1).factor - (taps - 1); }

}  // namespace reprise::nn
