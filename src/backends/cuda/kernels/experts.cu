#include "backends/cuda/kernels/experts.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_experts(KernelTable& table) { fill_experts_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
