#include "backends/cuda/kernels/sample.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_sample(KernelTable& table) { fill_sample_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
