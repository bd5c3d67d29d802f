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
  // The tokens that may come next: a bit per token, 64 to a word; those beyond the last word may not. At least one may.
  // Good until accept().
  virtual Result<std::span<const uint64_t>> allowed() = 0;
  // How many of these tokens may come next, one after the other; nothing changes.
  virtual int64_t allowed_prefix(std::span<const int32_t> tokens) const = 0;
  // The token that was drawn; one that may not come is an error.
  virtual Status accept(int32_t token) = 0;
};

}  // namespace reprise::engine
