// How a configuration says that positions turn: rope_theta, rope_scaling and rope_parameters, as the configuration
// classes of transformers 5 understand them. Plain functions; any thread.
#pragma once

#include <string_view>

#include "base/json.h"
#include "checkpoint/config.h"
#include "checkpoint/field_reader.h"

namespace reprise::checkpoint {

// Which of the two objects counts: rope_scaling unless it is absent, null or empty. "" when neither is there.
std::string_view rope_object_in_effect(const Json& config);

// Wants the sizes of heads, which decide about partial rotation.
Status read_rope(const FieldReader& in, ModelConfigFields& out);

// The part of a head that turns, as the file says it or the family has it; before read_rope(), which checks it.
double stated_rotation(const FieldReader& in, const ModelConfigFields& fields);

}  // namespace reprise::checkpoint
