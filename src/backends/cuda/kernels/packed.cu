#include "backends/cuda/kernels/packed.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_packed(KernelTable& table) { fill_packed_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
