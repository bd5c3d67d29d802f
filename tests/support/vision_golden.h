// The tiny models with a vision tower of tests/data/vision, and their prompts with images; "MODEL:video" is the one
// with a video, "MODEL_gguf" one of two GGUF files.
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
  return std::string(REPRISE_SOURCE_DIR) + "/tests/data/vision/" + model.substr(0, model.find(':'));
}
inline bool is_gguf(const std::string& model) { return model.ends_with("_gguf"); }
inline bool with_video(const std::string& model) { return model.find(':') != std::string::npos; }

class VisionGolden {
 public:
  explicit VisionGolden(const std::string& model)
      : video_(with_video(model)),
        file_(checkpoint::SafetensorsFile::open(vision_folder(model) +
                                                (video_ ? "/video.safetensors" : "/golden.safetensors"))) {}

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

  std::vector<engine::SequenceImage> images() const { return video_ ? parts() : stills(); }

  static constexpr int32_t kImage = 147;

 private:
  engine::SequenceImage image(size_t i, int64_t first, int64_t rows, int64_t columns) const {
    engine::ImageInput input{.digest = "image " + std::to_string(i),
                             .rows = rows,
                             .columns = columns,
                             .patches = get<float>("patches." + std::to_string(i))};
    return {first, rows / 2, columns / 2, std::make_shared<const engine::ImageInput>(input)};
  }

  // Images stand where their placeholders do.
  std::vector<engine::SequenceImage> stills() const {
    const auto tokens = get<int32_t>("tokens");
    const auto grids = get<int32_t>("grids");
    std::vector<engine::SequenceImage> out;
    size_t at = 0;
    for (size_t i = 0; i < grids.size() / 2; ++i) {
      while (tokens[at] != kImage) ++at;
      out.push_back(image(i, static_cast<int64_t>(at), grids[2 * i], grids[2 * i + 1]));
      at += static_cast<size_t>(out.back().high * out.back().wide);
    }
    return out;
  }

  // Pairs of frames, and an image, as the file has them.
  std::vector<engine::SequenceImage> parts() const {
    const auto parts = get<int32_t>("parts");  // first, rows, columns, joined, time
    std::vector<engine::SequenceImage> out;
    for (size_t i = 0; i < parts.size() / 5; ++i) {
      out.push_back(image(i, parts[5 * i], parts[5 * i + 1], parts[5 * i + 2]));
      out.back().joined = parts[5 * i + 3] != 0;
      out.back().time = parts[5 * i + 4];
    }
    return out;
  }

  const bool video_;
  Result<checkpoint::SafetensorsFile> file_;
};

}  // namespace reprise::testing_support
