#include "backends/cuda/kernels/draw_parts.h"

#include "backends/cuda/device_launch.h"

namespace reprise::cuda {

void fill_draw_parts(KernelTable& table) { fill_draw_parts_of<DeviceLaunch>(table); }

}  // namespace reprise::cuda
