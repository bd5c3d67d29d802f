// Packed weights on disk: the same bits as from the checkpoint, and whatever is wrong with the file is a miss.
#include "weights/weight_cache.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "support/tiny_models.h"
#include "weights/content_hash.h"

namespace reprise::weights::weight_cache_test {
namespace {

namespace fs = std::filesystem;

using engine::Engine;
using engine::EngineOptions;

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
    return testing_support::all_logits(*e, std::vector<int32_t>{3, 9, 27, 81, 5, 4, 3, 2, 1}, 4);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    if (fs::exists(cache()))
      for (const auto& entry : fs::directory_iterator(cache()))
        if (entry.path().extension() == ".weights") out.push_back(entry.path());
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

// What `cp --preserve`, a sync tool or a training script leaves behind: other weights, the same size and time.
TEST_F(WeightCacheTest, OtherWeightsOfTheSameSizeAndTimeAreRead) {
  const std::string model = copy_of("qwen3_untied"), tensors = model + "/model.safetensors";
  const auto old = logits(model, true);
  const auto time = fs::last_write_time(tensors);
  std::string bytes = *read_file(tensors);
  for (size_t at = bytes.size() / 2 / 4 * 4 + 2; at < bytes.size(); at += 512)  // bits of mantissas
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
  std::ofstream(tensors, std::ios::binary) << bytes;
  fs::last_write_time(tensors, time);
  const auto changed = logits(model, false);
  expect_same_bits(changed, logits(model, true));
  EXPECT_NE(*old, *changed) << "the change must be one that matters";
  ASSERT_EQ(files().size(), 1u) << "the old one goes";
  // Swapped in by a rename, which is another inode.
  fs::copy(testing_support::tiny_model_path("qwen3_untied") + "/model.safetensors", tensors + ".new");
  fs::last_write_time(tensors + ".new", time);
  fs::rename(tensors + ".new", tensors);
  expect_same_bits(old, logits(model, true));
}

TEST_F(WeightCacheTest, UnchangedFilesAreHashedOnce) {
  // Committed data, older than the two seconds within which a time stamp proves nothing.
  const std::vector<std::string> kept{testing_support::tiny_model_path("qwen3_untied") + "/model.safetensors",
                                      testing_support::tiny_model_path("qwen3_untied") + "/config.json"};
  const std::string memo = folder_ + "/memo/qwen3.content";
  const auto first = hash_contents(kept, memo, 2), second = hash_contents(kept, memo, 1);
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_EQ(first->bytes_read, fs::file_size(kept[0]) + fs::file_size(kept[1]));
  EXPECT_EQ(second->bytes_read, 0u);
  EXPECT_EQ(first->hashes, second->hashes);
  EXPECT_NE(first->hashes[0], first->hashes[1]);
  for (const char* damage : {"", "[]", "{\"x\": 1}", "{\"x\": [1, 2]}", "\xff"}) {
    std::ofstream(memo) << damage;
    const auto again = hash_contents(kept, memo, 2);
    ASSERT_TRUE(again.is_ok());
    EXPECT_EQ(again->hashes, first->hashes) << damage;
  }
}

TEST_F(WeightCacheTest, FilesThatChangeNowAreNotRemembered) {
  const std::vector<std::string> young{folder_ + "/young"};
  const std::string memo = folder_ + "/young.content";
  std::ofstream(young[0]) << "one";
  const auto one = hash_contents(young, memo, 2);
  std::ofstream(young[0]) << "two";
  const auto two = hash_contents(young, memo, 2);
  ASSERT_TRUE(one.is_ok() && two.is_ok());
  EXPECT_NE(one->hashes, two->hashes);
  EXPECT_FALSE(fs::exists(memo));
  const auto missing = hash_contents(std::vector<std::string>{folder_ + "/missing"}, memo, 2);
  ASSERT_FALSE(missing.is_ok());
  EXPECT_NE(missing.status().message().find("/missing: "), std::string::npos);
}

TEST_F(WeightCacheTest, ATouchedCheckpointIsTheSameAndAnotherDtypeIsAnotherLayout) {
  const std::string model = copy_of("qwen3_untied");
  expect_same_bits(logits(model, false), logits(model, true));
  const auto first = files();
  ASSERT_EQ(first.size(), 1u);
  fs::last_write_time(model + "/model.safetensors", fs::file_time_type::clock::now() + std::chrono::seconds(3));
  expect_same_bits(logits(model, false), logits(model, true));
  EXPECT_EQ(files(), first);
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
}  // namespace reprise::weights::weight_cache_test
