#include "backends/cuda/kernels/ranks.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_ranks(RankKernels& table) { fill_ranks_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
