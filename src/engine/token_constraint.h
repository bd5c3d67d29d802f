// TokenConstraint: says which tokens may come next, as a grammar or a schema wants it. One per sequence; it follows the
// sequence token by token. One thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace reprise::engine {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets the logits of all tokens that may not come next to minus infinity. At least one stays.
  virtual Status mask(std::span<float> logits) = 0;
  // The token that was drawn; one that was masked is an error.
  virtual Status accept(int32_t token) = 0;
};

}  // namespace reprise::engine
