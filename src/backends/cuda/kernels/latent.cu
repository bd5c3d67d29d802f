#include "backends/cuda/kernels/latent.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_latent(KernelTable& table) { fill_latent_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
