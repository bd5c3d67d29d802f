// The fields of mixtures of experts, family by family. A pure function.
#pragma once

#include "checkpoint/config.h"
#include "checkpoint/field_reader.h"

namespace reprise::checkpoint {

// Fills out.experts where out.architecture has experts; its sizes are read already.
Status read_experts(const FieldReader& in, ModelConfigFields& out);

}  // namespace reprise::checkpoint
