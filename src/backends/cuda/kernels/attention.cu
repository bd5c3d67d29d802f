#include "backends/cuda/kernels/attention.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_attention(KernelTable& table) { fill_attention_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
