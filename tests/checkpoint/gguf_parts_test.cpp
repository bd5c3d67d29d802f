// Split GGUF models: parts as the gguf package writes them, and parts of which something is wrong.
#include "checkpoint/gguf_parts.h"

#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"
#include "checkpoint/helpers.h"
#include "models/model.h"

namespace reprise::checkpoint::gguf_parts_test {
namespace {

constexpr int kParts = 4;
std::string part_name(int number) { return fmt::format("granite-0000{}-of-00004.gguf", number); }
std::string golden(int number) { return data_dir() + "/gguf/" + part_name(number); }

TEST(GgufParts, TogetherTheyAreTheWholeFile) {
  auto whole = Checkpoint::open(data_dir() + "/gguf/granite.gguf", models::families()),
       split = Checkpoint::open(golden(1), models::families());
  ASSERT_TRUE(whole.is_ok()) << whole.status().message();
  ASSERT_TRUE(split.is_ok()) << split.status().message();
  ASSERT_EQ(split->tensors().size(), whole->tensors().size());
  EXPECT_EQ(split->total_bytes(), whole->total_bytes());
  size_t in_other_parts = 0;
  for (size_t i = 0; i < whole->tensors().size(); ++i) {
    const CheckpointTensor &a = whole->tensors()[i], &b = split->tensors()[i];
    SCOPED_TRACE(a.name);
    ASSERT_EQ(b.name, a.name);
    EXPECT_EQ(b.shape, a.shape);
    EXPECT_EQ(b.interleaved_heads, a.interleaved_heads);
    in_other_parts += b.file != 0;
    const auto count = static_cast<size_t>(a.elements());
    std::vector<float> want(count), got(count);
    ASSERT_TRUE(whole->read_rows(a, 0, a.rows(), DType::F32, want.data()).is_ok());
    ASSERT_TRUE(split->read_rows(b, 0, b.rows(), DType::F32, got.data()).is_ok());
    EXPECT_EQ(got, want);
    split->release(b);
  }
  EXPECT_EQ(in_other_parts, whole->tensors().size() - 7);
  EXPECT_EQ(split->gguf()->source(), golden(1)) << "the metadata";
}

TEST(GgufParts, AnErrorOfATensorNamesItsOwnPart) {
  const TemporaryFolder folder;
  for (int i = 1; i <= kParts; ++i) std::filesystem::copy_file(golden(i), folder.path + "/" + part_name(i));
  auto split = Checkpoint::open(folder.path + "/" + part_name(1), models::families());
  ASSERT_TRUE(split.is_ok()) << split.status().message();
  const CheckpointTensor& last = split->tensors().back();
  std::vector<float> out(1);
  expect_error(split->read_rows(last, last.rows(), 1, DType::F32, out.data()), {part_name(kParts), last.name});
}

TEST(GgufParts, FilesByTheNameOfTheFirst) {
  const std::vector<std::string> all{golden(1), golden(2), golden(3), golden(4)};
  EXPECT_EQ(gguf_part_paths(golden(1)), all);
  for (const std::string& one :
       {golden(2), data_dir() + "/gguf/granite.gguf", std::string("a-00001-of-000x4.gguf"),
        std::string("00001-of-00004.gguf"), std::string(".gguf"), std::string("/no/such-00001-of-00002.gguf")})
    EXPECT_EQ(gguf_part_paths(one), std::vector<std::string>{one});
}

TEST(GgufParts, AModelIsOpenedByItsFirstPart) {
  for (int i = 2; i <= kParts; ++i) {
    const std::vector<std::string_view> words{"part", "of 4", "opened by its first part, ",
                                              "granite-00001-of-00004.gguf"};
    expect_error(open_gguf_model(golden(i)).status(), words);
    expect_error(Checkpoint::open(golden(i), models::families()).status(), words);
    expect_error(read_model_config(golden(i), {}, models::families(true)).status(), words);
  }
}

class BrokenParts : public testing::Test {
 protected:
  // Part `number` of `count` as its keys say, in a file named as part `named` of `of`.
  void part(int named, int of, std::optional<int> number, int count, const std::string& tensor, int announced = -1) {
    GgufBuilder b;
    if (named == 1) b.str("general.architecture", "qwen2");
    if (number) b.key("split.no", 3), put<int16_t>(b.metadata, static_cast<int16_t>(*number));
    b.key("split.count", 5);
    put<int32_t>(b.metadata, count);
    if (announced >= 0) b.u32("split.tensors.count", static_cast<uint32_t>(announced));
    b.f32_tensor(tensor, {1}, {1});
    folder.write(fmt::format("m-{:05}-of-{:05}.gguf", named, of), b.finish());
  }
  Status open() const { return Checkpoint::open(folder.path + "/m-00001-of-00002.gguf", models::families()).status(); }
  TemporaryFolder folder;
};

TEST_F(BrokenParts, EachIsToldByItsFile) {
  part(1, 2, 0, 2, "a", 2);
  expect_error(open(), {"m-00001-of-00002.gguf: part 2 of 2", "m-00002-of-00002.gguf", "No such file"});
  part(2, 2, 1, 2, "b");
  EXPECT_TRUE(open().is_ok()) << open().message();
  part(2, 2, 0, 2, "b");
  expect_error(open(), {"m-00002-of-00002.gguf", "says that it is part 1 of 2, and its name that it is part 2 of 2"});
  part(2, 2, 1, 3, "b");
  expect_error(open(), {"m-00002-of-00002.gguf", "part 2 of 3"});
  part(2, 2, {}, 2, "b");
  expect_error(open(), {"m-00002-of-00002.gguf", "split.no is missing"});
  part(2, 2, 1, 2, "a");
  expect_error(open(), {"\"a\" is given twice"});
  part(2, 2, 1, 2, "b");
  part(1, 2, 0, 2, "a", 3);
  expect_error(open(), {"split.tensors.count is 3, but its 2 parts have 2 tensors"});
  folder.write("m-00002-of-00002.gguf", "GGUF");
  part(1, 2, 0, 2, "a", 2);
  expect_error(open(), {"m-00001-of-00002.gguf: part 2 of 2", "m-00002-of-00002.gguf", "the version"});
}

TEST_F(BrokenParts, NumbersAndNamesOutOfRange) {
  for (const auto& [number, count, words] : {std::tuple{2, 2, "split.no is 2; allowed: 0 to 1"},
                                             {-1, 2, "split.no is -1; allowed: 0 to 1"},
                                             {0, -3, "split.count is -3; allowed: 0 to 65535"},
                                             {0, 65536, "split.count is 65536; allowed: 0 to 65535"},
                                             {0, 7, "its name must end in -00001-of-00007.gguf"},
                                             {1, 7, "its name must end in -00002-of-00007.gguf"}}) {
    part(1, 2, number, count, "a");
    expect_error(open(), {"m-00001-of-00002.gguf", words});
  }
  // One part is a whole file, whatever its name.
  for (int count : {0, 1}) {
    part(1, 2, 0, count, "a");
    EXPECT_TRUE(open().is_ok()) << open().message();
  }
}

}  // namespace
}  // namespace reprise::checkpoint::gguf_parts_test
