// The tiny models with a vision tower of tests/data/vision, and their prompts with images.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "engine/image.h"

namespace reprise::testing_support {

inline std::string vision_folder(const std::string& model) {
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/vision/" + model;
}

class VisionGolden {
 public:
  explicit VisionGolden(const std::string& model)
      : file_(checkpoint::SafetensorsFile::open(vision_folder(model) + "/golden.safetensors")) {}

  template <typename T>
  std::vector<T> get(const std::string& name) const {
    const auto* t = file_->find(name);
    EXPECT_TRUE(t) << name;
    if (!t) return {};
    const auto bytes = file_->bytes(*t);
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }

  std::vector<engine::SequenceImage> images() const {
    const auto tokens = get<int32_t>("tokens");
    const auto grids = get<int32_t>("grids");
    std::vector<engine::SequenceImage> out;
    size_t at = 0;
    for (size_t i = 0; i < grids.size() / 2; ++i) {
      while (tokens[at] != kImage) ++at;
      engine::ImageInput input{.digest = "image " + std::to_string(i),
                               .rows = grids[2 * i],
                               .columns = grids[2 * i + 1],
                               .patches = get<float>("patches." + std::to_string(i))};
      out.push_back({static_cast<int64_t>(at), input.rows / 2, input.columns / 2,
                     std::make_shared<const engine::ImageInput>(input)});
      at += static_cast<size_t>(input.rows * input.columns / 4);
    }
    return out;
  }

  static constexpr int32_t kImage = 147;

 private:
  Result<checkpoint::SafetensorsFile> file_;
};

}  // namespace reprise::testing_support
