// Packed weights on disk: the same bits as from the checkpoint, and whatever is wrong with the file is a miss.
#include "engine/weight_cache.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "support/tiny_models.h"

namespace reprise::engine {
namespace {

namespace fs = std::filesystem;

class WeightCacheTest : public testing::Test {
 protected:
  WeightCacheTest() {
    static int count = 0;
    folder_ = (fs::path(testing::TempDir()) / fmt::format("reprise_weights_{}_{}", ::getpid(), count++)).string();
    fs::create_directories(folder_);
  }
  ~WeightCacheTest() override { fs::remove_all(folder_); }

  // A copy, so that its files may change.
  std::string copy_of(const std::string& model) const {
    const std::string to = folder_ + "/" + model;
    fs::copy(testing_support::tiny_model_path(model), to, fs::copy_options::recursive);
    return to;
  }
  std::string cache() const { return folder_ + "/cache"; }

  Result<std::vector<float>> logits(const std::string& model, bool cached, DType dtype = DType::BF16) const {
    ASSIGN_OR_RETURN(Platform platform, make_platform({DeviceKind::Cpu, "auto", 2, false}));
    EngineOptions o;
    o.model_path = model;
    o.dtype = dtype;
    o.chunked_prefill_size = 16;
    o.max_running_requests = 4;
    o.max_total_tokens = 512;
    if (cached) o.weight_cache = cache();
    ASSIGN_OR_RETURN(auto e, Engine::create(o, std::move(platform)));
    return testing_support::all_logits(*e, {3, 9, 27, 81, 5, 4, 3, 2, 1}, 4);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    if (fs::exists(cache()))
      for (const auto& entry : fs::directory_iterator(cache())) out.push_back(entry.path());
    return out;
  }

  std::string folder_;
};

void expect_same_bits(const Result<std::vector<float>>& a, const Result<std::vector<float>>& b) {
  ASSERT_TRUE(a.is_ok()) << a.status().message();
  ASSERT_TRUE(b.is_ok()) << b.status().message();
  ASSERT_FALSE(a->empty());
  EXPECT_TRUE(a->size() == b->size() && std::memcmp(a->data(), b->data(), a->size() * sizeof(float)) == 0);
}

TEST_F(WeightCacheTest, GivesTheSameBitsAndOneFile) {
  for (const char* name : {"qwen3_tied", "llama_gqa4_sharded", "qwen2_untied", "llama_bias"}) {
    SCOPED_TRACE(name);
    const std::string model = copy_of(name);
    const auto plain = logits(model, false);
    EXPECT_EQ(files().size(), 0u);
    expect_same_bits(plain, logits(model, true));
    ASSERT_EQ(files().size(), 1u);
    const auto time = fs::last_write_time(files()[0]);
    expect_same_bits(plain, logits(model, true));
    ASSERT_EQ(files().size(), 1u);
    EXPECT_EQ(fs::last_write_time(files()[0]), time) << "a hit writes nothing";
    fs::remove_all(cache());
  }
}

TEST_F(WeightCacheTest, AHitReadsNoTensorOfTheCheckpoint) {
  const std::string model = copy_of("qwen3_untied");
  const auto plain = logits(model, true);
  // The header stays, the numbers turn into NaN, which reading would refuse; size and time stay as they were.
  const std::string tensors = model + "/model.safetensors";
  const auto time = fs::last_write_time(tensors);
  std::string bytes = *read_file(tensors);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(8 + header), bytes.end(), '\xff');
  std::ofstream(tensors, std::ios::binary) << bytes;
  EXPECT_FALSE(logits(model, false).is_ok());
  fs::last_write_time(tensors, time);
  expect_same_bits(plain, logits(model, true));
}

TEST_F(WeightCacheTest, AChangedCheckpointIsReadAgain) {
  const std::string model = copy_of("qwen3_untied");
  expect_same_bits(logits(model, false), logits(model, true));
  const auto first = files();
  ASSERT_EQ(first.size(), 1u);
  fs::last_write_time(model + "/model.safetensors", fs::file_time_type::clock::now() + std::chrono::seconds(3));
  expect_same_bits(logits(model, false), logits(model, true));
  ASSERT_EQ(files().size(), 1u) << "the old one goes";
  EXPECT_NE(files()[0], first[0]);
  // Another dtype is another layout; both stay.
  expect_same_bits(logits(model, false, DType::F32), logits(model, true, DType::F32));
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(WeightCacheTest, DamageIsAMissAndReplaced) {
  const std::string model = copy_of("llama_gqa3_tied");
  const auto plain = logits(model, true);
  ASSERT_EQ(files().size(), 1u);
  const std::string path = files()[0].string(), good = *read_file(path);
  std::vector<std::string> bad{"", "x", good + "x", std::string(good.size(), '\0')};
  for (size_t n : {size_t{8}, size_t{40}, size_t{60}, good.size() / 2, good.size() - 1})
    bad.push_back(good.substr(0, n));
  for (size_t at : {size_t{0}, size_t{9}, size_t{13}, size_t{17}, size_t{33}, size_t{41}, size_t{49}, size_t{4096},
                    good.size() / 2, good.size() - 1}) {
    bad.push_back(good);
    bad.back()[at] = static_cast<char>(bad.back()[at] ^ 4);
  }
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    std::ofstream(path, std::ios::binary) << bad[i];
    expect_same_bits(plain, logits(model, true));
    EXPECT_EQ(*read_file(path), good);
  }
}

TEST_F(WeightCacheTest, AFolderThatCannotBeWrittenIsANotice) {
  const std::string model = copy_of("mistral_full");
  std::ofstream(cache()) << "not a folder";
  expect_same_bits(logits(model, false), logits(model, true));
}

}  // namespace
}  // namespace reprise::engine
