// Where the default model lies, for tests that need a real one: $REPRISE_CACHE/smollm2 (default ~/.cache/reprise),
// filled by `reprise pull smollm2`, which `./dev test` runs. In CI its absence is a failure.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace reprise::testing_support {

inline std::string smollm2_path() {
  const char* cache = std::getenv("REPRISE_CACHE");
  const char* home = std::getenv("HOME");
  const std::filesystem::path root =
      cache ? std::filesystem::path(cache) : std::filesystem::path(home ? home : ".") / ".cache/reprise";
  std::error_code ec;
  for (auto& entry : std::filesystem::directory_iterator(root / "smollm2", ec))
    if (entry.path().extension() == ".gguf") return entry.path().string();
  return {};
}

inline bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci && std::string(ci) == "true";
}

}  // namespace reprise::testing_support

#define REPRISE_NEEDS_SMOLLM2(path)                                                   \
  const std::string path = ::reprise::testing_support::smollm2_path();                \
  if (path.empty()) {                                                                 \
    if (::reprise::testing_support::in_ci()) FAIL() << "SmolLM2 is not in the cache"; \
    GTEST_SKIP() << "SmolLM2 is not in the cache; run `reprise pull smollm2`";        \
  }
