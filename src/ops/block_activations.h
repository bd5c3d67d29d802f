// What ops on weights in GGUF blocks multiply their activations as, the attribute "activations": "same" as they are,
// "int8" rounded to int8. Pure functions; any thread.
#pragma once

#include <string>

#include "ops/attrs.h"

namespace reprise {

inline std::string activations_attr(bool int8) { return int8 ? "int8" : "same"; }

// False for ops without the attribute.
inline bool has_int8_activations(const Attrs& attrs) {
  const AttrValue* activations = attrs.find("activations");
  return activations && *activations == AttrValue(activations_attr(true));
}

}  // namespace reprise
