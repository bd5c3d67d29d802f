// check_fields: config.json may hold fields of other families, also under an architecture of ours. One that changes
// what the model computes, and that the model does not go by, is an error that names it; one that nothing here reads
// becomes a notice. Values that change nothing (a cap of null, a multiplier of 1) pass. A plain function.
#pragma once

#include "models/model.h"

namespace reprise::models {

Status check_fields(const ModelSpec& spec, checkpoint::ModelConfigFields& fields);

}  // namespace reprise::models
