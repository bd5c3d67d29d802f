// What the backend takes for granted of a card and its CANN, tried once: `reprise doctor --device ascend` prints it, so
// that a stranger's report says which of the assumptions of docs/ascend.md hold. Plain functions on a stream and memory
// of their own; one thread.
#pragma once

#include <memory>
#include <vector>

#include "backends/ascend/context.h"
#include "device/device.h"

namespace reprise::ascend {

// Code::Unsupported: could not be tried, with the reason.
std::vector<OwnCheck> card_checks(const std::shared_ptr<Context>& context, MemoryPool& pool);

}  // namespace reprise::ascend
