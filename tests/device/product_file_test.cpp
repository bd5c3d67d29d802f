// Files of ProductWays: what was written is read, and every damage is an error with a reason.
#include "device/product_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace reprise::product_file_test {
namespace {

const ProductWaysKey kKey{130100, "sm_90", 132, 1};

ProductWay way(int64_t rows, ProductWay::Outcome outcome = ProductWay::Outcome::Library) {
  ProductWay w;
  w.in = DType::BF16;
  w.out = DType::F32;
  w.depth = 4096;
  w.columns = 24576;
  w.rows = rows_like(rows);
  w.outcome = outcome;
  for (size_t i = 0; i < w.algorithm.size(); ++i) w.algorithm[i] = static_cast<uint8_t>(3 * i + 1);
  w.us = 12.5f;
  w.own_us = 15;
  w.proposed = 8;
  w.other_bits = 2;
  return w;
}

Result<std::vector<ProductWay>> decoded(const std::string& bytes, const ProductWaysKey& key = kKey) {
  return decode_ways({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, key);
}

TEST(RowsLike, CoverAllNumbersOnce) {
  int64_t before = 0;
  for (int64_t rows = 1; rows <= 20000; rows = rows_like(rows).last + 1) {
    const RowRange r = rows_like(rows);
    EXPECT_EQ(r.first, before + 1);
    EXPECT_EQ(rows_like(r.last), r);
    EXPECT_EQ(rows_like((r.first + r.last) / 2), r);
    EXPECT_LE((r.last - r.first + 1) * 16, std::max<int64_t>(256, r.first)) << rows;
    before = r.last;
  }
  EXPECT_EQ(rows_like(17), (RowRange{17, 32}));
  EXPECT_EQ(rows_like(256), (RowRange{241, 256}));
  EXPECT_EQ(rows_like(8192), (RowRange{7937, 8192}));
}

TEST(ProductFile, GivesBackWhatWasWritten) {
  const std::vector<ProductWay> ways{way(17), way(300, ProductWay::Outcome::OtherBits), way(4096)};
  const auto again = decoded(encode_ways(ways, kKey));
  ASSERT_TRUE(again.is_ok()) << again.status().message();
  ASSERT_EQ(again->size(), ways.size());
  for (size_t i = 0; i < ways.size(); ++i) {
    const ProductWay &a = ways[i], &b = (*again)[i];
    EXPECT_TRUE(a.in == b.in && a.out == b.out && a.depth == b.depth && a.columns == b.columns && a.rows == b.rows);
    EXPECT_TRUE(a.outcome == b.outcome && a.algorithm == b.algorithm && a.us == b.us && a.own_us == b.own_us);
    EXPECT_TRUE(a.proposed == b.proposed && a.other_bits == b.other_bits);
  }
  EXPECT_TRUE(decoded(encode_ways({}, kKey)).is_ok());
}

TEST(ProductFile, OfAnotherLibraryOrGpuIsNotRead) {
  const std::string bytes = encode_ways({way(17)}, kKey);
  for (const ProductWaysKey& other :
       {ProductWaysKey{130200, "sm_90", 132, 1}, ProductWaysKey{130100, "sm_80", 132, 1},
        ProductWaysKey{130100, "sm_90", 114, 1}, ProductWaysKey{130100, "sm_90", 132, 2}}) {
    const auto read = decoded(bytes, other);
    ASSERT_FALSE(read.is_ok());
    EXPECT_EQ(read.status().code(), Code::Unsupported) << read.status().message();
  }
}

TEST(ProductFile, EveryDamagedByteAndEveryCutIsAnError) {
  const std::string bytes = encode_ways({way(17), way(64)}, kKey);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    EXPECT_FALSE(decoded(damaged).is_ok()) << "byte " << i;
    EXPECT_FALSE(decoded(bytes.substr(0, i)).is_ok()) << "cut behind " << i;
  }
  EXPECT_FALSE(decoded(bytes + "x").is_ok());
}

// Whatever the checksum says.
TEST(ProductFile, AWayThatNoDeviceFindsIsAnError) {
  const auto refused = [](const std::function<void(ProductWay&)>& change) {
    ProductWay w = way(17);
    change(w);
    const auto read = decoded(encode_ways({w}, kKey));
    return !read.is_ok() && read.status().code() == Code::Invalid;
  };
  EXPECT_FALSE(refused([](ProductWay&) {}));
  EXPECT_TRUE(refused([](ProductWay& w) { w.in = static_cast<DType>(200); }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.out = DType::F16; }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.depth = 0; }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.columns = -16; }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.rows = {17, 33}; }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.rows = {0, 16}; }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.rows = {int64_t{1} << 62, INT64_MAX}; }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.outcome = static_cast<ProductWay::Outcome>(4); }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.us = std::numeric_limits<float>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.own_us = -1; }));
  EXPECT_TRUE(refused([](ProductWay& w) { w.other_bits = 9; }));
}

}  // namespace
}  // namespace reprise::product_file_test
