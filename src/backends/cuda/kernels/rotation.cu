#include "backends/cuda/kernels/rotation.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_rotation(KernelTable& table) { fill_rotation_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
