#include "backends/cuda/kernels/quantise.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_quantise(KernelTable& table) { fill_quantise_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
