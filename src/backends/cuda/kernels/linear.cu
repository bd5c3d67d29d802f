#include "backends/cuda/kernels/linear.h"

#include "backends/cuda/device_launch.h"
#include "backends/cuda/kernels/library.h"

namespace reprise::cuda {

void own_float_product(const Product& p, void* y, cudaStream_t stream) {
  DeviceLaunch launch(stream, nullptr);
  const ProductSizes z{p.tokens, p.depth, p.columns};
  const bool wide = p.out == Number::F32;
  if (p.in == Number::BF16)
    wide ? product<BF16, F32>(z, p.x, p.weight, nullptr, nullptr, y, launch)
         : product<BF16, BF16>(z, p.x, p.weight, nullptr, nullptr, y, launch);
  else
    wide ? product<F16, F32>(z, p.x, p.weight, nullptr, nullptr, y, launch)
         : product<F16, F16>(z, p.x, p.weight, nullptr, nullptr, y, launch);
}

void fill_linear(KernelTable& table) { fill_linear_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
