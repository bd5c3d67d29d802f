// What is looked at before anything is loaded, so that a card which cannot serve is told in one line and not in the
// refusals of the first operator that meets it.
#pragma once

#include <string_view>

#include "backends/ascend/context.h"

namespace reprise::ascend {

// An error where nothing of this backend can run: another kind of chip, no kernels for it, hardly any memory that is
// free. Notices of what is degraded: a driver without task updates, memory that is taken already.
Status check_start(const Context& context, size_t free_bytes, size_t total_bytes);

// Whether the version ("24.1.RC2") is older than the first driver that changes tasks of a captured graph. What is not a
// version is not.
bool lacks_task_updates(std::string_view driver);

}  // namespace reprise::ascend
