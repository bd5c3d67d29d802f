#include "backends/cuda/kernels/linear_silu_mul.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_linear_silu_mul(KernelTable& table) { fill_linear_silu_mul_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
