#include "backends/cuda/kernels/elementwise.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_elementwise(KernelTable& table) { fill_elementwise_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
