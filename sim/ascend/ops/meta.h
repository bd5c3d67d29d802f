// The objects behind the opaque handles of the meta API. Each belongs to who created it; none owns device memory.
//
// live() knows which are still alive, so that a stale handle is refused instead of read. Objects themselves are not
// guarded: a caller that changes a tensor in one thread and passes it in another races, as it would on the real
// library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ascend/ops/tensor.h"

struct aclTensor {
  ascend_sim::View view;
  uint64_t serial = 0;  // of all tensors that were ever created; an address may be used again
};
struct aclScalar {
  aclDataType dtype = -1;
  double number = 0;
  int64_t whole = 0;  // the same of an integer, exactly
};
struct aclIntArray {
  std::vector<int64_t> values;
};
struct aclFloatArray {
  std::vector<float> values;
};
struct aclBoolArray {
  std::vector<char> values;
};
struct aclTensorList {
  std::vector<aclTensor*> tensors;
};
struct aclScalarList {
  std::vector<aclScalar*> scalars;
};

namespace ascend_sim {

// Whether this object of the meta API was created and not destroyed yet.
bool live(const void* object);
// Whether the tensor is the one of that number still.
bool live(const aclTensor* tensor, uint64_t serial);

}  // namespace ascend_sim
