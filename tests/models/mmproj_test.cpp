// A text model and its vision tower as two GGUF files (tools/golden/make_mmproj.py): what is told of files that do not
// go together, and what a text file is without its tower. That both together are the model of transformers is in
// vision_test.cpp.
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "engine/engine.h"
#include "sched/image_prompt.h"
#include "support/temporary_path.h"
#include "support/tiny_models.h"
#include "support/vision_golden.h"

namespace reprise::mmproj_test {
namespace {

using testing_support::vision_folder;
using testing_support::VisionGolden;

std::string text_file(const std::string& model) { return vision_folder(model + "_gguf") + "/model.gguf"; }
std::string tower_file(const std::string& model) { return vision_folder(model + "_gguf") + "/mmproj.gguf"; }

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const std::string& mmproj) {
  ASSIGN_OR_RETURN(Platform platform, make_platform({DeviceKind::Cpu, "auto", 1, false}));
  engine::EngineOptions o;
  o.model_path = model;
  o.mmproj_path = mmproj;
  o.dtype = DType::F32;
  o.max_running_requests = 2;
  o.chunked_prefill_size = 64;
  o.max_total_tokens = 256;
  return engine::Engine::create(o, std::move(platform));
}

std::string refused(const std::string& model, const std::string& mmproj) {
  const auto e = open(model, mmproj);
  return e.is_ok() ? "" : e.status().message();
}

// A copy of a file with a few of its bytes changed.
class Changed {
 public:
  explicit Changed(const std::string& file) : path_(testing_support::temporary_path("changed.gguf")) {
    auto bytes = read_file(file);
    EXPECT_TRUE(bytes.is_ok());
    if (bytes.is_ok()) bytes_ = std::move(*bytes);
  }
  ~Changed() { std::remove(path_.c_str()); }
  Changed& rename(const std::string& from, const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    bytes_.replace(at(from), from.size(), to);
    return *this;
  }
  // Of a metadata value: the key's text, four bytes of its type, the number.
  Changed& number(const std::string& key, uint32_t value) {
    std::memcpy(&bytes_[at(key) + key.size() + 4], &value, sizeof value);
    return *this;
  }
  const std::string& path() {
    std::ofstream(path_, std::ios::binary) << bytes_;
    return path_;
  }

 private:
  size_t at(const std::string& text) const {
    const size_t found = bytes_.find(text);
    EXPECT_NE(found, std::string::npos) << text;
    return found == std::string::npos ? 0 : found;
  }
  std::string path_, bytes_;
};

#define EXPECT_TOLD(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST(Mmproj, FilesThatDoNotGoTogetherAreRefused) {
  const std::string text3 = text_file("qwen3_vl"), tower3 = tower_file("qwen3_vl"), tower2 = tower_file("qwen2_5_vl");
  EXPECT_TOLD(refused(text3, tower2),
              "clip.projector_type is \"qwen2.5vl_merger\"; allowed with " + text3 + ": \"qwen3vl_merger\"");
  EXPECT_TOLD(refused(text3, text3), "general.architecture is \"qwen3vl\"; allowed: \"clip\"");
  EXPECT_TOLD(refused(tower3, ""),
              "which is a vision tower alone; give its text model as `model_path`, and this file "
              "as `mmproj`");
  EXPECT_TOLD(refused(std::string(REPRISE_SOURCE_DIR) + "/tests/data/gguf/seed_oss.gguf", tower3),
              "text models of general.architecture \"seed_oss\" take none here; allowed: qwen35, qwen35moe, qwen2vl, "
              "qwen3vl, qwen3vlmoe");
  EXPECT_TOLD(refused(vision_folder("qwen3_vl"), tower3), "is a folder, whose vision tower is among its own tensors");
  EXPECT_TOLD(refused(text3, tower3 + ".not"), tower3 + ".not");
}

TEST(Mmproj, WhatAFileLacksOrHasTooMuchIsNamed) {
  const std::string text = text_file("qwen3_vl"), tower = tower_file("qwen3_vl");
  EXPECT_TOLD(refused(text, Changed(tower).rename("v.blk.1.ln2.bias", "v.blk.1.ln9.bias").path()),
              "1 missing (visual.blocks.1.norm2.bias); 1 left over (v.blk.1.ln9.bias)");
  EXPECT_TOLD(refused(text, Changed(tower).rename("v.patch_embd.weight.1", "v.patch_embd.weight.2").path()),
              "tensor \"v.patch_embd.weight.1\" is missing");
  EXPECT_TOLD(refused(text, Changed(tower).rename("v.position_embd.weight", "v.position_embx.weight").path()),
              "tensor \"v.position_embd.weight\" is missing");
  EXPECT_TOLD(refused(text, Changed(tower).rename("clip.vision.block_count", "clip.vision.block_counx").path()),
              "metadata \"clip.vision.block_count\" is missing");
  EXPECT_TOLD(refused(text, Changed(tower).rename("clip.vision.image_mean", "clip.vision.image_meax").path()),
              "metadata \"clip.vision.image_mean\" is missing; allowed: three numbers");
  EXPECT_TOLD(refused(Changed(text).rename("<|image_pad|>", "<|image_pod|>").path(), tower),
              "tokenizer.ggml.tokens has no <|image_pad|>");
  EXPECT_TOLD(refused(Changed(text).rename("rope.dimension_sections", "rope.dimension_sectionx").path(), tower),
              "metadata \"qwen3vl.rope.dimension_sections\" is missing");
}

TEST(Mmproj, SizesThatDifferAreTold) {
  const std::string text = text_file("qwen3_vl"), tower = tower_file("qwen3_vl");
  const std::string shape = refused(text, Changed(tower).number("clip.vision.feed_forward_length", 63).path());
  EXPECT_TOLD(shape, "visual.blocks.0.mlp.linear_fc1");
  EXPECT_TOLD(shape, "64");
  EXPECT_TOLD(refused(text, Changed(tower).number("clip.vision.projection_dim", 40).path()),
              "its rows have 40 numbers and those of " + text + " have 36");
  EXPECT_TOLD(refused(Changed(text).number("qwen3vl.n_deepstack_layers", 1).path(), tower),
              "deepstack of 2 levels (clip.vision.is_deepstack_layers); its text model");
  EXPECT_TOLD(refused(text, Changed(tower).number("clip.vision.patch_size", 4000000).path()), "allowed: 1 to 1024");
}

// Without its tower a text file is a text model: what stands before the first picture is as the reference has it.
TEST(Mmproj, ATextFileAloneIsATextModel) {
  for (const std::string model : {"qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5_vl"}) {
    const VisionGolden golden(model + "_gguf");
    auto e = open(text_file(model), "");
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    EXPECT_EQ((*e)->tower(), nullptr);
    std::vector<int32_t> tokens = golden.get<int32_t>("tokens");
    tokens.resize(5);
    const auto got = testing_support::all_logits(**e, tokens, 3), want = golden.get<float>("logits");
    float largest = 0;
    for (size_t i = 0; i < got.size(); ++i) largest = std::max(largest, std::fabs(want[i]));
    ASSERT_EQ(got.size(), 5 * static_cast<size_t>((*e)->vocab_size()));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4f * largest) << model << " " << i;
    EXPECT_TOLD(sched::reads_no_images((*e)->config()), "without the GGUF file of its vision tower (`mmproj`)");
  }
}

// Matrices of a tower in blocks, against transformers with the numbers that they hold.
TEST(Mmproj, TowersInBlocksGiveTheRowsOfTheReference) {
  const VisionGolden golden("qwen3_vl_gguf");
  auto e = open(text_file("qwen3_vl"), vision_folder("qwen3_vl_gguf") + "/mmproj-q8_0.gguf");
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto images = golden.images();
  for (size_t i = 0; i < images.size(); ++i) {
    const auto rows = (*e)->image_rows(*images[i].input);
    ASSERT_TRUE(rows.is_ok()) << rows.status().message();
    const auto want = golden.get<float>(fmt::format("rows_q8_0.{}", i)),
               whole = golden.get<float>(fmt::format("rows.{}", i));
    std::vector<float> got(want.size());
    ASSERT_EQ((*rows)->rows.size(), got.size() * sizeof(float));
    std::memcpy(got.data(), (*rows)->rows.data(), (*rows)->rows.size());
    float largest = 0, worst = 0, blocks = 0;
    for (size_t k = 0; k < want.size(); ++k) {
      largest = std::max(largest, std::fabs(want[k]));
      worst = std::max(worst, std::fabs(want[k] - got[k]));
      blocks = std::max(blocks, std::fabs(want[k] - whole[k]));
    }
    EXPECT_LE(worst, 2e-5f * largest);
    EXPECT_GT(blocks, 1e-3f * largest) << "the blocks must make a difference";
  }
}

// The file says how pictures are cut, as preprocessor_config.json does (tools/golden/make_vision_answers.py, RULES).
TEST(Mmproj, PicturesAreCutAsTheFileSays) {
  auto e = open(text_file("qwen3_vl"), tower_file("qwen3_vl"));
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const checkpoint::VisionFields& vision = *(*e)->config().vision;
  const auto rules = sched::patch_rules("none", vision, 2048),
             folder = sched::patch_rules(vision_folder("qwen3_vl"), vision, 2048);
  ASSERT_TRUE(rules.is_ok() && folder.is_ok()) << rules.status().message();
  EXPECT_EQ(rules->text(), folder->text());
  const auto videos = sched::video_rules("none", vision, 2048);
  ASSERT_TRUE(videos.is_ok()) << videos.status().message();
  EXPECT_TRUE(videos->told_times && videos->patches.whole_video);
  EXPECT_EQ(videos->patches.patch, 4);
  // Bounds that a file does not name are llama.cpp's, in tokens (tools/mtmd/clip.cpp, set_limit_image_tokens).
  auto silent = open(text_file("qwen3_vl"), Changed(tower_file("qwen3_vl"))
                                                .rename("clip.vision.image_min_pixels", "clip.vision.image_min_pixelx")
                                                .rename("clip.vision.image_max_pixels", "clip.vision.image_max_pixelx")
                                                .path());
  ASSERT_TRUE(silent.is_ok()) << silent.status().message();
  const auto usual = sched::patch_rules("none", *(*silent)->config().vision, 4096);
  ASSERT_TRUE(usual.is_ok()) << usual.status().message();
  EXPECT_EQ(usual->min_pixels, 8 * 8 * 8);
  EXPECT_EQ(usual->max_pixels, 4096 * 8 * 8);
}

}  // namespace
}  // namespace reprise::mmproj_test
