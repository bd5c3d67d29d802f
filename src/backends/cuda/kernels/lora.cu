#include "backends/cuda/kernels/lora.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_lora(KernelTable& table) { fill_lora_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
