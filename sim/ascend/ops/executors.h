// Where phase 1 leaves its plans until phase 2 or aclDestroyAclOpExecutor takes them. Any thread may call.
#pragma once

#include "ascend/ops/executor.h"

namespace ascend_sim {

// The number under which the plan is kept.
aclOpExecutor* keep(Plan plan);

}  // namespace ascend_sim
