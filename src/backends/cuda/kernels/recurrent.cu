#include "backends/cuda/kernels/recurrent.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_recurrent(KernelTable& table) { fill_recurrent_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
