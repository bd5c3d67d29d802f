#include "backends/cuda/kernels/norm.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_norm(KernelTable& table) { fill_norm_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
