#include "base/byte_reader.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace reprise::byte_reader_test {
namespace {

const std::vector<uint8_t> kBytes = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a};

TEST(ByteReader, ReadsLittleEndianInOrder) {
  ByteReader r(kBytes, "f");
  EXPECT_EQ(*r.read<uint16_t>("a"), 0x0201);
  EXPECT_EQ(*r.read<uint32_t>("b"), 0x06050403u);
  EXPECT_EQ(r.offset(), 6u);
  EXPECT_EQ(r.remaining(), 4u);
  EXPECT_EQ(*r.read<uint8_t>("c"), 7);
  const auto rest = r.take(3, "rest");
  ASSERT_TRUE(rest.is_ok());
  EXPECT_EQ(rest->data(), kBytes.data() + 7);  // a view, not a copy
  EXPECT_EQ(r.remaining(), 0u);
  EXPECT_TRUE(r.take(0, "nothing").is_ok());
}

TEST(ByteReader, RefusesToRunOverAndStaysWhereItWas) {
  ByteReader r(kBytes, "model.gguf");
  ASSERT_TRUE(r.skip(8, "header").is_ok());
  const auto bad = r.read<uint32_t>("tensor count");
  ASSERT_FALSE(bad.is_ok());
  EXPECT_EQ(bad.status().message(), "model.gguf: tensor count at byte 8 needs 4 bytes, but only 2 are left");
  EXPECT_EQ(r.offset(), 8u);
  EXPECT_TRUE(r.read<uint16_t>("what fits").is_ok());
}

TEST(ByteReader, HugeSizesDoNotWrap) {
  ByteReader r(kBytes, "f");
  ASSERT_TRUE(r.skip(3, "start").is_ok());
  for (const uint64_t size : {std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max() - 2,
                              uint64_t{1} << 63, uint64_t{8}}) {
    EXPECT_FALSE(r.take(size, "string").is_ok()) << size;
    EXPECT_FALSE(r.skip(size, "string").is_ok()) << size;
  }
  EXPECT_EQ(r.offset(), 3u);
  EXPECT_TRUE(r.take(7, "string").is_ok());
}

TEST(ByteReader, EmptySource) {
  ByteReader r({}, "f");
  EXPECT_FALSE(r.read<uint8_t>("x").is_ok());
  EXPECT_TRUE(r.take(0, "x").is_ok());
}

TEST(ByteReader, UnalignedFloats) {
  const float v = 1.5f;
  std::vector<uint8_t> bytes(1 + sizeof v);
  std::memcpy(bytes.data() + 1, &v, sizeof v);
  ByteReader r(bytes, "f");
  ASSERT_TRUE(r.skip(1, "pad").is_ok());
  EXPECT_EQ(*r.read<float>("v"), 1.5f);
}

}  // namespace
}  // namespace reprise::byte_reader_test
