#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "checkpoint/helpers.h"

namespace reprise::checkpoint::safetensors_test {
namespace {

constexpr std::string_view kGood =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

Status parse_status(std::string_view header, size_t data) {
  const std::string bytes = safetensors_bytes(header, data);
  return SafetensorsFile::parse(bytes_of(bytes), "t.safetensors").status();
}

TEST(Safetensors, ReadsATensorList) {
  const std::string bytes = safetensors_bytes(kGood, 32);
  auto file = SafetensorsFile::parse(bytes_of(bytes), "t");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  ASSERT_EQ(file->tensors().size(), 2u);
  const StoredTensor* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->type, StorageType::F32);
  EXPECT_EQ(a->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(file->bytes(*a).data(), bytes_of(bytes).data() + 8 + kGood.size());
  EXPECT_EQ(file->find("b")->bytes, 8u);
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->metadata().at("format"), "pt");
}

TEST(Safetensors, EmptyFileOfTensorsIsFine) {
  EXPECT_TRUE(parse_status("{}", 0).is_ok());
  EXPECT_TRUE(parse_status("{}      ", 0).is_ok());
  EXPECT_TRUE(parse_status(R"({"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}})", 0).is_ok());
  EXPECT_TRUE(parse_status(R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", 8).is_ok());
}

TEST(Safetensors, EveryTruncationIsOneError) {
  const std::string bytes = safetensors_bytes(kGood, 32);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string cut = bytes.substr(0, n);  // its own allocation, so that sanitizers see reads past the end
    const auto file = SafetensorsFile::parse(bytes_of(cut), "cut.safetensors");
    SCOPED_TRACE(n);
    expect_error(file.status(), {"cut.safetensors"});
  }
  expect_error(SafetensorsFile::parse(bytes_of(bytes + "x"), "t").status(), {"last 1 bytes belong to no tensor"});
}

TEST(Safetensors, EveryFlippedBitIsHandled) {
  const std::string good = safetensors_bytes(kGood, 32);
  for (size_t i = 0; i < good.size() - 32; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      auto file = SafetensorsFile::parse(bytes_of(bytes), "t");
      if (!file.is_ok()) continue;
      for (const StoredTensor& t : file->tensors()) EXPECT_LE(t.offset + t.bytes, bytes.size());
    }
}

TEST(Safetensors, HostileHeaders) {
  struct Case {
    std::string header;
    size_t data;
    std::vector<std::string_view> words;
  };
  const std::string deep =
      R"({"a":{"dtype":"F32","shape":)" + std::string(100000, '[') + std::string(100000, ']') + "}}";
  const Case cases[] = {
      {"", 0, {"does not begin with {"}},
      {" {}", 0, {"does not begin with {"}},
      {"[]", 0, {"does not begin with {"}},
      {"{}x", 0, {"not valid JSON"}},
      {"{\"a\":", 0, {"not valid JSON"}},
      {"{\"a\xff\":{}}", 0, {"not valid JSON"}},
      {R"({"a":1})", 0, {"\"a\"", "not an object"}},
      {R"({"a":null})", 0, {"\"a\"", "null"}},
      {R"({"a":[]})", 0, {"\"a\"", "an array"}},
      {R"({"a":{}})", 0, {"\"a\"", "has no dtype"}},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, {"\"a\"", "has no data_offsets"}},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"\"a\"", "has no shape"}},
      {R"({"a":{"shape":[1],"data_offsets":[0,4],"dtype":"F32","x":1}})", 4, {"\"a\"", "unknown key \"x\"", "allowed"}},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, {"\"dtype\" is given twice"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8,
       {"\"a\"", "given twice"}},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, {"__metadata__", "\"k\" is given twice"}},
      {R"({"__metadata__":{"k":1}})", 0, {"__metadata__", "\"k\"", "not a string"}},
      {R"({"__metadata__":[]})", 0, {"__metadata__"}},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, {"dtype holds the number 7"}},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, {"shape holds the number 1"}},
      {R"({"a":{"dtype":"F32","shape":"1","data_offsets":[0,4]}})", 4, {"shape holds a string"}},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, {"shape holds -1, a negative number"}},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, {"shape holds the number 1.5"}},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, {"shape holds an array"}},
      {deep, 0, {"shape holds an array"}},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4, {"more than any tensor"}},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999999],"data_offsets":[0,4]}})",
       4,
       {"shape holds the number"}},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}})", 4, {"overflows"}},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0, {"overflows"}},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0, {"overflows"}},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, {"needs 8 bytes", "hold 4"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, {"run backwards"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, {"data_offsets holds -4"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, {"needs 2 numbers"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, {"more than 2 numbers"}},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, {"reach beyond the file's 4 bytes"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615]}})",
       4,
       {"reach beyond"}},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],)"
       R"("data_offsets":[4,12]}})",
       12,
       {"\"b\"", "overlaps \"a\""}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4,
       {"overlaps"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],)"
       R"("data_offsets":[8,12]}})",
       12,
       {"bytes 4 to 8", "belong to no tensor"}},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, {"belong to no tensor"}},
      {"{}", 8, {"last 8 bytes belong to no tensor"}},
      {R"({"a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,4]}})", 4, {"needs 3 bytes"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.header.substr(0, 200));
    expect_error(parse_status(c.header, c.data), {"t.safetensors"});
    expect_error(parse_status(c.header, c.data), c.words);
  }
}

TEST(Safetensors, HeaderLengthIsBounded) {
  std::string bytes;
  put<uint64_t>(bytes, kMaxSafetensorsHeader + 1);
  expect_error(SafetensorsFile::parse(bytes_of(bytes), "t").status(), {"more than the allowed 100000000"});
  bytes.clear();
  put<uint64_t>(bytes, ~uint64_t{0});
  bytes += "{}";
  expect_error(SafetensorsFile::parse(bytes_of(bytes), "t").status(), {"more than the allowed"});
}

TEST(Safetensors, UnreadableTypesAreListed) {
  const std::string bytes =
      safetensors_bytes(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"NEW","shape":[4],)"
                        R"("data_offsets":[4,7]}})",
                        7);
  auto file = SafetensorsFile::parse(bytes_of(bytes), "t");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(file->find("a")->type, StorageType::Other);
  EXPECT_EQ(file->find("a")->type_name, "F8_E4M3");
  EXPECT_EQ(file->find("b")->bytes, 3u);
}

TEST(Safetensors, WritesWhatItReads) {
  const TemporaryFolder folder;
  std::vector<uint8_t> data(256);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  const std::span<const uint8_t> all = data;
  const std::string quoted = "with \"quotes\" and ü";
  std::vector<TensorToWrite> tensors;
  size_t offset = 0;
  for (DType t : {DType::Bool, DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::U8, DType::I16,
                  DType::I32, DType::I64}) {
    const size_t n = 3 * size_of(t);
    tensors.push_back({std::string(dtype_name(t)), t, {3}, all.subspan(offset, n)});
    offset += n;
  }
  tensors.push_back({quoted, DType::U8, {1, 2}, all.subspan(0, 2)});
  tensors.push_back({"scalar", DType::F32, {}, all.subspan(4, 4)});
  tensors.push_back({"empty", DType::F32, {0, 5}, {}});
  const std::string path = folder.path + "/x.safetensors";
  ASSERT_TRUE(write_safetensors(path, tensors, {{"format", "pt"}, {"k", "v\n"}}).is_ok());
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(file->metadata().at("k"), "v\n");
  EXPECT_EQ(file->tensors().size(), tensors.size());
  for (const TensorToWrite& t : tensors) {
    const StoredTensor* got = file->find(t.name);
    ASSERT_NE(got, nullptr) << t.name;
    EXPECT_EQ(plain_dtype(got->type), t.dtype);
    EXPECT_EQ(got->shape, t.shape);
    EXPECT_EQ(got->offset % size_of(t.dtype), 0u) << t.name;
    const auto bytes = file->bytes(*got);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), t.bytes.begin(), t.bytes.end())) << t.name;
  }
}

TEST(Safetensors, WriterRefusesNonsense) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/x.safetensors";
  const std::vector<uint8_t> data(8);
  const auto one = [&](TensorToWrite t) { return write_safetensors(path, std::vector<TensorToWrite>{t}); };
  expect_error(one({"a", DType::F32, {3}, data}), {"\"a\"", "needs 12 bytes", "8 were given"});
  expect_error(one({"a", DType::F32, {-1}, data}), {"negative or overflows"});
  expect_error(one({"a", DType::F32, {int64_t{1} << 62, 16}, data}), {"overflows"});
  expect_error(one({"", DType::F32, {2}, data}), {"not allowed as the name"});
  expect_error(one({"\xff", DType::F32, {2}, data}), {"not UTF-8"});
  const TensorToWrite t{"a", DType::F32, {2}, data};
  expect_error(write_safetensors(path, std::vector<TensorToWrite>{t, t}), {"given twice"});
  expect_error(write_safetensors(folder.path + "/none/x", std::vector<TensorToWrite>{t}), {"none/x"});
  EXPECT_FALSE(SafetensorsFile::open(path).is_ok());  // nothing was left behind
}

TEST(Safetensors, OpensFiles) {
  expect_error(SafetensorsFile::open("/nonexistent/a.safetensors").status(), {"/nonexistent/a.safetensors"});
  expect_error(SafetensorsFile::open("/").status(), {"not a regular file"});
  auto file = SafetensorsFile::open(data_dir() + "/models/llama_bias/model.safetensors");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_NE(file->find("model.layers.0.self_attn.q_proj.bias"), nullptr);
}

}  // namespace
}  // namespace reprise::checkpoint::safetensors_test
