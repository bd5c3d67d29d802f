// ByThree: a grammar without text, for tests of scheduling.
#pragma once

#include <vector>

#include "engine/token_constraint.h"

namespace reprise::testing_support {

// After token t, those whose sum with t has this remainder by 3.
class ByThree final : public engine::TokenConstraint {
 public:
  explicit ByThree(int64_t tokens) : tokens_(tokens) {}
  bool may_follow(int32_t last, int64_t next) const { return (last + next) % 3 == 1; }
  Result<std::span<const uint64_t>> allowed() override {
    mask_.assign(static_cast<size_t>((tokens_ + 63) / 64), 0);
    for (int64_t t = 0; t < tokens_; ++t)
      if (may_follow(last_, t)) mask_[static_cast<size_t>(t / 64)] |= uint64_t{1} << (t % 64);
    return std::span<const uint64_t>(mask_);
  }
  int64_t allowed_prefix(std::span<const int32_t> tokens) const override {
    int64_t n = 0;
    for (int32_t last = last_; n < static_cast<int64_t>(tokens.size()); last = tokens[static_cast<size_t>(n++)])
      if (!may_follow(last, tokens[static_cast<size_t>(n)])) break;
    return n;
  }
  Status accept(int32_t token) override {
    if (!may_follow(last_, token)) return invalid("token {} after {}", token, last_);
    last_ = token;
    return Status::ok();
  }

 private:
  int64_t tokens_;
  int32_t last_ = 0;
  std::vector<uint64_t> mask_;
};

}  // namespace reprise::testing_support
