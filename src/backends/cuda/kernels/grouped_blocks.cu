#include "backends/cuda/kernels/grouped_blocks.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_grouped_blocks(KernelTable& table) { fill_grouped_blocks_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
