#include "ascend/ops/tensor.h"

#include <algorithm>
#include <utility>

namespace ascend_sim {

namespace {

bool packed_as(const Dims& shape, const Dims& strides) {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace

bool View::packed() const { return count() == 0 || packed_as(shape, strides); }

bool View::transposed() const {
  if (rank() < 2) return false;
  Dims swapped = shape, steps = strides;
  std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
  std::swap(steps[steps.size() - 1], steps[steps.size() - 2]);
  return packed_as(swapped, steps);
}

Touch View::touch(bool written) const {
  if (!given || count() == 0) return {};
  if (fractal()) return {first(), static_cast<size_t>(product(storage) * element()), written};
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * strides[i];
  return {first(), static_cast<size_t>(std::max(last + 1, reach) * element()), written};
}

}  // namespace ascend_sim
