// The tiny models with a vision tower of tests/data/vision, and their prompts with images; "MODEL:video" is the one
// with a video, "MODEL_gguf" one of two GGUF files. What transformers gives in bf16 and fp16 is in a file of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
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
                                                (video_ ? "/video.safetensors" : "/golden.safetensors"))),
        half_(checkpoint::SafetensorsFile::open(vision_folder(model) +
                                                (video_ ? "/video_half.safetensors" : "/half.safetensors"))) {}

  template <typename T>
  std::vector<T> get(const std::string& name) const {
    return get<T>(*file_, name);
  }
  // Logits of transformers in bf16 or fp16, and the positions that they are of.
  std::vector<float> half_logits(DType dtype) const {
    const auto bits = get<uint16_t>(*half_, "logits." + std::string(dtype_name(dtype)));
    std::vector<float> out;
    for (const uint16_t b : bits) out.push_back(dtype == DType::BF16 ? bf16_to_float(b) : half_to_float(b));
    return out;
  }
  std::vector<int32_t> half_positions() const { return get<int32_t>(*half_, "positions"); }

  std::vector<engine::SequenceImage> images() const { return video_ ? parts() : stills(); }

  static constexpr int32_t kImage = 147;

 private:
  template <typename T>
  static std::vector<T> get(const checkpoint::SafetensorsFile& file, const std::string& name) {
    const auto* t = file.find(name);
    EXPECT_TRUE(t) << name;
    if (!t) return {};
    const auto bytes = file.bytes(*t);
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }

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
  Result<checkpoint::SafetensorsFile> file_, half_;
};

// How far transformers' own logits of this prompt are from its logits in fp32, over the largest one.
inline double error_of_transformers(const std::string& model, DType dtype) {
  const auto text = read_file(vision_folder("") + "hf_half_error.json", 1 << 20);
  EXPECT_TRUE(text.is_ok());
  return text.is_ok() ? Json::parse(*text)["models"][model][std::string(dtype_name(dtype))].get<double>() : 0.0;
}

}  // namespace reprise::testing_support
