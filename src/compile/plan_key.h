// PlanKey: a hash of everything that a compiled program follows from, the address of a plan in the cache.
//
// What goes in: the model's configuration and the sizes of the trace (added by the engine), the schemas of all ops, the
// passes with their options and pass files, every kernel of the registry, the device with its instruction set and
// ranks, and the identity of the code itself: the build ids of the program and of all libraries it has loaded. Anything
// that is not the same gives another key, so an entry never needs to be judged old. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/status.h"
#include "ops/platform.h"
#include "passes/pipeline.h"

namespace reprise {

using PlanKey = Digest;

class KeyBuilder {
 public:
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, int64_t value);
  void add(const Platform& platform);
  void add(const PipelineOptions& options);
  void add_build() { add("build", build_identity()); }

  PlanKey key() const { return digest_of(text_); }

  // Build ids of the program and of every loaded library; where there is none, a digest of the file's
  // bytes, and where the file is gone, a value that no other process has.
  static std::string build_identity();

 private:
  std::string text_;
};

}  // namespace reprise
