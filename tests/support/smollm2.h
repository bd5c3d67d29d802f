// Where the default model lies, for tests that need a real one: $REPRISE_CACHE/smollm2 (default ~/.cache/reprise),
// filled by `reprise pull smollm2`, which `./dev test` runs. In CI its absence is a failure.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace reprise::testing_support {

// Where `reprise pull NAME` puts a model; it need not be there.
inline std::filesystem::path pulled_folder(const std::string& name) {
  const char* cache = std::getenv("REPRISE_CACHE");
  const char* home = std::getenv("HOME");
  return (cache && *cache ? std::filesystem::path(cache)
                          : std::filesystem::path(home ? home : ".") / ".cache/reprise") /
         name;
}

inline std::string smollm2_path() {
  std::error_code ec;
  for (auto& entry : std::filesystem::directory_iterator(pulled_folder("smollm2"), ec))
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
