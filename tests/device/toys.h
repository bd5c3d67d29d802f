// Toys: the three kernels that a device brings to the conformance list. Apart from it, so that nvcc need not read
// GoogleTest.
#pragma once

#include "device/thunk.h"

namespace reprise::conformance {

// Over the first dim[0] floats of ptr[0]: ptr[1] = ptr[0] + scalar[0], ptr[0] * scalar[0], ptr[0].
struct Toys {
  OpaqueKernel add = nullptr;
  OpaqueKernel scale = nullptr;
  OpaqueKernel copy = nullptr;
};

Toys ascend_toys();
Toys cuda_toys();  // null where the build has no CUDA

}  // namespace reprise::conformance
