#include "backends/cuda/kernels/encoder.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_encoder(KernelTable& table) { fill_encoder_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
