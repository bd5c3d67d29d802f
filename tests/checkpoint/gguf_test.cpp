#include "checkpoint/gguf.h"

#include <gtest/gtest.h>

#include <bit>

#include "checkpoint/dequantize.h"
#include "checkpoint/gguf_tokenizer.h"
#include "checkpoint/helpers.h"
#include "checkpoint/safetensors.h"

namespace reprise::checkpoint::gguf_test {
namespace {

Status parse_status(const std::string& bytes) { return GgufFile::parse(bytes_of(bytes), "t.gguf").status(); }

GgufBuilder small() {
  GgufBuilder b;
  b.str("general.architecture", "llama").u32("llama.block_count", 1).strings("words", {"a", "", "xyz"});
  b.array<int32_t>("numbers", 5, {1, -2, 3});
  b.f32_tensor("a", {3, 2}, {1, 2, 3, 4, 5, 6}).f32_tensor("b", {2}, {7, 8});
  return b;
}

class GgufGolden : public testing::TestWithParam<const char*> {};

TEST_P(GgufGolden, EveryTypeBitForBit) {
  auto file = GgufFile::open(data_dir() + "/gguf/" + GetParam());
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  auto expected = SafetensorsFile::open(data_dir() + "/gguf/quants_expected.safetensors");
  ASSERT_TRUE(expected.is_ok()) << expected.status().message();
  EXPECT_EQ(file->tensors().size(), expected->tensors().size());
  for (const StoredTensor& t : file->tensors()) {
    SCOPED_TRACE(t.name);
    const StoredTensor* want = expected->find(t.name);
    ASSERT_NE(want, nullptr);
    EXPECT_EQ(t.shape, want->shape);
    std::vector<float> got(static_cast<size_t>(t.elements()));
    const Status s = dequantize(t.type, file->bytes(t), got);
    ASSERT_TRUE(s.is_ok()) << s.message();
    const auto bytes = expected->bytes(*want);
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, bytes.data() + 4 * i, 4);
      wrong += std::bit_cast<uint32_t>(got[i]) != bits;
    }
    EXPECT_EQ(wrong, 0u);
  }
}

TEST_P(GgufGolden, EveryMetadataType) {
  auto file = GgufFile::open(data_dir() + "/gguf/" + GetParam());
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(**file->integer("test.uint8"), 200);
  EXPECT_EQ(**file->integer("test.int8"), -100);
  EXPECT_EQ(**file->integer("test.uint16"), 60000);
  EXPECT_EQ(**file->integer("test.int16"), -30000);
  EXPECT_EQ(**file->integer("test.uint32"), 4000000000);
  EXPECT_EQ(**file->integer("test.int32"), -2000000000);
  EXPECT_EQ(**file->integer("test.int64"), -(int64_t{1} << 62));
  EXPECT_EQ(**file->number("test.float32"), 0.15625);
  EXPECT_EQ(**file->number("test.float64"), 1e-300);
  EXPECT_EQ(**file->number("test.uint64"), 9223372036854775808.0);
  EXPECT_EQ(**file->boolean("test.bool"), true);
  EXPECT_EQ(**file->string("test.empty_string"), "");
  EXPECT_EQ(**file->string("test.string"), "häß 日本 🙂");
  EXPECT_FALSE(file->integer("absent")->has_value());
  expect_error(file->integer("test.uint64").status(), {"test.uint64", "too large"});
  expect_error(file->integer("test.float32").status(), {"test.float32", "expected an integer"});
  expect_error(file->string("test.bool").status(), {"test.bool", "expected a string"});
  EXPECT_EQ(file->find_value("test.array.string")->strings[2], "ü");
  EXPECT_EQ(*file->find_value("test.array.int32")->as_int(1), -2);
  EXPECT_EQ(*file->find_value("test.array.float32")->as_double(1), -0.25);
  EXPECT_EQ(file->find_value("test.array.empty")->count, 0u);
}

INSTANTIATE_TEST_SUITE_P(Versions, GgufGolden, testing::Values("quants_v2.gguf", "quants_v3.gguf"));

TEST(Gguf, ShortFloatsReadAsTheirDecimals) {
  const std::string bytes = GgufBuilder().f32("eps", 1e-5f).f32("third", 1.0f / 3).finish();
  auto file = GgufFile::parse(bytes_of(bytes), "t");
  EXPECT_EQ(**file->number("eps"), 1e-5);
  EXPECT_EQ(static_cast<float>(**file->number("third")), 1.0f / 3);
}

TEST(Gguf, EveryTruncationIsOneError) {
  const std::string good = small().finish();
  ASSERT_TRUE(parse_status(good).is_ok()) << parse_status(good).message();
  for (size_t n = 0; n < good.size(); ++n) {
    SCOPED_TRACE(n);
    expect_error(parse_status(good.substr(0, n)), {"t.gguf"});
  }
}

TEST(Gguf, EveryFlippedBitIsHandled) {
  const std::string good = small().finish();
  for (size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      auto file = GgufFile::parse(bytes_of(bytes), "t");
      if (!file.is_ok()) continue;
      for (const StoredTensor& t : file->tensors()) EXPECT_LE(t.offset + t.bytes, bytes.size());
    }
}

TEST(Gguf, NestedArrays) {
  const auto nested = [](int levels) {
    GgufBuilder b;
    b.key("deep", 9);
    for (int i = 1; i < levels; ++i) {
      put<uint32_t>(b.metadata, 9);
      put<uint64_t>(b.metadata, 1);
    }
    put<uint32_t>(b.metadata, 0);
    put<uint64_t>(b.metadata, 2);
    b.metadata += "\x05\x06";
    return b.finish();
  };
  const std::string bytes = nested(3);
  auto file = GgufFile::parse(bytes_of(bytes), "t");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(*file->find_value("deep")->arrays[0].arrays[0].as_int(1), 6);
  EXPECT_TRUE(parse_status(nested(4)).is_ok());
  expect_error(parse_status(nested(5)), {"\"deep\"", "nested deeper than 4"});
  expect_error(parse_status(nested(100000)), {"\"deep\"", "nested deeper than 4"});
}

TEST(Gguf, HostileHeaders) {
  const auto counts = [](uint64_t tensors, uint64_t entries) {
    GgufBuilder b;
    b.tensors = tensors;
    b.entries = entries;
    return b.finish() + std::string(1000, '\0');
  };
  expect_error(parse_status("GGML" + std::string(100, '\0')), {"not a GGUF file"});
  expect_error(parse_status(counts(~uint64_t{0}, 0)), {"tensors cannot fit"});
  expect_error(parse_status(counts(0, ~uint64_t{0})), {"metadata entries cannot fit"});
  expect_error(parse_status(counts(1000, 0)), {"tensors cannot fit"});
  for (uint32_t version : {0u, 1u, 4u, 1000u}) {
    GgufBuilder b;
    b.version = version;
    expect_error(parse_status(b.finish()), {"version", "2, 3"});
  }
  for (uint32_t version : {0x02000000u, 0x03000000u}) {
    GgufBuilder b;
    b.version = version;
    expect_error(parse_status(b.finish()), {"big-endian"});
  }
}

TEST(Gguf, HostileMetadata) {
  expect_error(parse_status(GgufBuilder().u32("k", 1).u32("k", 2).finish()), {"\"k\" is given twice"});
  expect_error(parse_status(GgufBuilder().u32("", 1).finish()), {"empty key"});
  expect_error(parse_status(GgufBuilder().flag("k", 2).finish()), {"\"k\"", "bool holds 2"});
  expect_error(parse_status(GgufBuilder().array<uint8_t>("k", 7, {0, 1, 9}).finish()), {"\"k\"", "bool holds 9"});
  expect_error(parse_status(GgufBuilder().u32(std::string(70000, 'k'), 1).finish()), {"more than the allowed 65535"});
  GgufBuilder type;
  type.key("k", 13);
  type.metadata += std::string(64, '\0');
  expect_error(parse_status(type.finish()), {"\"k\"", "value type 13", "allowed: 0 to 12"});
  for (uint32_t element : {0u, 4u, 8u, 9u, 12u}) {
    GgufBuilder b;
    b.key("k", 9);
    put(b.metadata, element);
    put<uint64_t>(b.metadata, uint64_t{1} << 61);
    b.metadata += std::string(64, '\0');
    expect_error(parse_status(b.finish()), {"\"k\"", "cannot fit"});
  }
  GgufBuilder text;
  text.key("k", 8);
  put<uint64_t>(text.metadata, ~uint64_t{0});
  text.metadata += "abc";
  expect_error(parse_status(text.finish()), {"k at byte", "needs 18446744073709551615 bytes"});
}

TEST(Gguf, HostileTensors) {
  const auto status = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t data = 64) {
    GgufBuilder b;
    b.info("w", dims, type, offset);
    b.data.resize(data);
    return parse_status(b.finish());
  };
  EXPECT_TRUE(status({16}, 0, 0).is_ok());
  EXPECT_TRUE(status({}, 0, 0).is_ok());
  expect_error(status({17}, 0, 0), {"\"w\"", "reaches beyond"});
  expect_error(status({16}, 0, 32), {"\"w\"", "reaches beyond"});
  expect_error(status({16}, 0, ~uint64_t{31}), {"\"w\"", "reaches beyond"});
  expect_error(status({8}, 0, 4), {"\"w\"", "not a multiple of the alignment 32"});
  expect_error(status({0}, 0, 0), {"\"w\"", "zero or makes"});
  expect_error(status({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0), {"\"w\"", "overflow"});
  expect_error(status({uint64_t{1} << 63}, 0, 0), {"\"w\"", "overflow"});
  expect_error(status({uint64_t{1} << 62}, 0, 0), {"\"w\"", "size in bytes overflows"});
  expect_error(status({1, 1, 1, 1, 1}, 0, 0), {"\"w\"", "5 dimensions"});
  expect_error(status({16}, 2, 0), {"\"w\"", "not whole blocks of Q4_0"});
  expect_error(status({128}, 14, 0), {"\"w\"", "not whole blocks of Q6_K"});
  for (uint32_t type : {4u, 5u, 31u, 36u, 99u, ~0u})
    expect_error(status({16}, type, 0), {"\"w\"", "not defined", "Q4_K (12)"});
  // Types that GGUF defines and we cannot read are listed.
  EXPECT_TRUE(status({256}, 16, 0, 66).is_ok());
  expect_error(status({256}, 16, 0, 65), {"reaches beyond"});

  expect_error(parse_status(GgufBuilder().info("w", {4}, 0, 0).info("w", {4}, 0, 32).finish() + std::string(64, '\0')),
               {"\"w\" is given twice"});
  expect_error(parse_status(GgufBuilder().info("w", {16}, 0, 0).info("v", {4}, 0, 32).finish() + std::string(96, '\0')),
               {"\"v\" overlaps \"w\""});
  expect_error(parse_status(GgufBuilder().info("", {4}, 0, 0).finish()), {"empty name"});
  expect_error(parse_status(GgufBuilder().info("a\nb", {4}, 0, 0).finish()), {"control characters"});
  expect_error(parse_status(GgufBuilder().info(std::string(65, 'n'), {4}, 0, 0).finish()),
               {"more than the allowed 64"});
}

TEST(Gguf, Alignment) {
  for (uint32_t alignment : {0u, 3u, 33u, 1u << 31}) {
    GgufBuilder b;
    b.u32("general.alignment", alignment);
    expect_error(parse_status(b.finish()), {"general.alignment", "powers of two"});
  }
  expect_error(parse_status(GgufBuilder().str("general.alignment", "32").finish()),
               {"general.alignment", "an integer"});
  GgufBuilder b;
  b.alignment = 128;
  b.u32("general.alignment", 128).f32_tensor("a", {1}, {1}).f32_tensor("b", {1}, {2});
  const std::string bytes = b.finish();
  auto file = GgufFile::parse(bytes_of(bytes), "t");
  ASSERT_TRUE(file.is_ok()) << file.status().message();
  EXPECT_EQ(file->find("b")->offset % 128, 0u);
}

TEST(Gguf, DequantizeChecksSizes) {
  std::vector<uint8_t> blocks(36);
  std::vector<float> out(64);
  EXPECT_TRUE(dequantize(StorageType::Q4_0, blocks, out).is_ok());
  expect_error(dequantize(StorageType::Q4_0, std::span(blocks).first(35), out), {"do not hold"});
  expect_error(dequantize(StorageType::Q4_0, blocks, std::span(out).first(33)), {"do not hold"});
  expect_error(dequantize(StorageType::Other, blocks, out), {"no conversion"});
  expect_error(dequantize(StorageType::I8, blocks, out), {"no conversion"});
  EXPECT_TRUE(dequantize(StorageType::F32, {}, {}).is_ok());
}

TEST(GgufTokenizer, ReadsAndChecks) {
  GgufBuilder b;
  b.str("tokenizer.ggml.model", "gpt2")
      .str("tokenizer.ggml.pre", "smollm")
      .strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  b.strings("tokenizer.ggml.merges", {"a b"}).array<int32_t>("tokenizer.ggml.token_type", 5, {1, 3, 6});
  b.array<float>("tokenizer.ggml.scores", 6, {0, -1, -2.5}).u32("tokenizer.ggml.bos_token_id", 2);
  b.u32("tokenizer.ggml.padding_token_id", 0xffffffff).flag("tokenizer.ggml.add_bos_token", 1);
  b.str("tokenizer.chat_template", "T").str("tokenizer.chat_template.tool_use", "U");
  b.array<uint8_t>("tokenizer.ggml.precompiled_charsmap", 0, {4, 0, 255}).flag("tokenizer.ggml.add_sep_token", 0);
  const std::string bytes = b.finish();
  auto file = GgufFile::parse(bytes_of(bytes), "t");
  auto t = read_gguf_tokenizer(*file);
  ASSERT_TRUE(t.is_ok()) << t.status().message();
  EXPECT_EQ(t->model, "gpt2");
  EXPECT_EQ(t->pre, "smollm");
  EXPECT_EQ(t->tokens, (std::vector<std::string>{"a", "b", "ab"}));
  EXPECT_EQ(t->merges, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(t->kinds[1], GgufTokenKind::Control);
  EXPECT_EQ(t->scores[2], -2.5f);
  EXPECT_EQ(t->bos_id, 2);
  EXPECT_FALSE(t->pad_id.has_value());
  EXPECT_FALSE(t->eos_id.has_value());
  EXPECT_EQ(t->add_bos, true);
  EXPECT_FALSE(t->add_eos.has_value());
  EXPECT_EQ(t->add_sep, false);
  EXPECT_EQ(t->charsmap, std::string("\4\0\377", 3));
  EXPECT_EQ(t->chat_template, "T");
  EXPECT_EQ(t->chat_templates.at("tool_use"), "U");
}

TEST(GgufTokenizer, BadMetadata) {
  const auto status = [](const GgufBuilder& b) {
    const std::string bytes = b.finish();
    auto file = GgufFile::parse(bytes_of(bytes), "t.gguf");
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return read_gguf_tokenizer(*file).status();
  };
  const auto with_tokens = [] { return GgufBuilder().strings("tokenizer.ggml.tokens", {"a", "b"}); };
  EXPECT_EQ(status(GgufBuilder()).code(), Code::NotFound);
  expect_error(status(GgufBuilder().u32("tokenizer.ggml.tokens", 1)), {"tokenizer.ggml.tokens", "array of strings"});
  expect_error(status(GgufBuilder().strings("tokenizer.ggml.tokens", {})), {"0 tokens"});
  expect_error(status(with_tokens().u32("tokenizer.ggml.eos_token_id", 2)), {"eos_token_id", "allowed: 0 to 1"});
  expect_error(status(with_tokens().array<float>("tokenizer.ggml.scores", 6, {1})),
               {"scores", "1 elements", "2 tokens"});
  expect_error(status(with_tokens().array<int32_t>("tokenizer.ggml.token_type", 5, {1, 7})), {"token 1", "0 to 6"});
  expect_error(status(with_tokens().u32("tokenizer.ggml.add_bos_token", 1)), {"add_bos_token", "expected a bool"});
  expect_error(status(with_tokens().u32("tokenizer.chat_template", 1)), {"chat_template", "expected a string"});
  expect_error(status(with_tokens().array<uint32_t>("tokenizer.ggml.precompiled_charsmap", 4, {1})),
               {"t.gguf", "precompiled_charsmap", "not an array of bytes"});
  expect_error(status(with_tokens().str("tokenizer.ggml.precompiled_charsmap", "abc")),
               {"t.gguf", "precompiled_charsmap", "not an array of bytes"});
}

}  // namespace
}  // namespace reprise::checkpoint::gguf_test
