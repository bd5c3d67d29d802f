// Heads of values of GGUF's "qwen35" and "qwen35moe", which llama.cpp's converter reorders.
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/convert.h"
#include "checkpoint/helpers.h"
#include "checkpoint/quantisation.h"
#include "models/model.h"

namespace reprise::checkpoint::gguf_heads_test {
namespace {

// Two heads of values of each of three key heads, as llama.cpp's converter reorders them: reshaped to [key heads, of
// each, size], the first two dimensions change places.
constexpr uint32_t kTiledKeys = 3, kTiledEach = 2, kTiledKey = 2;

GgufBuilder tiled_metadata(std::string_view arch, uint32_t size) {
  GgufBuilder b;
  const std::string prefix = std::string(arch) + ".ssm.";
  b.str("general.architecture", std::string(arch));
  b.u32(prefix + "group_count", kTiledKeys).u32(prefix + "time_step_rank", kTiledKeys * kTiledEach);
  return b.u32(prefix + "state_size", kTiledKey).u32(prefix + "inner_size", kTiledKeys * kTiledEach * size);
}

// Runs of `size` numbers behind the first `front`.
template <typename T>
std::vector<T> tiled(const std::vector<T>& x, size_t front, size_t size) {
  std::vector<T> out(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(front));
  for (size_t j = 0; j < kTiledEach; ++j)
    for (size_t k = 0; k < kTiledKeys; ++k)
      for (size_t i = 0; i < size; ++i) out.push_back(x.at(front + (k * kTiledEach + j) * size + i));
  return out;
}

std::vector<float> counted(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  return x;
}

TEST(GgufHeads, RowsAndColumnsComeInHuggingFacesOrder) {
  constexpr size_t kSize = 4, kHeads = size_t{kTiledKeys} * kTiledEach, kCols = 5,
                   kFront = size_t{2} * kTiledKeys * kTiledKey;
  const std::vector<float> qkv = counted((kFront + kHeads * kSize) * kCols), out = counted(2 * kHeads * kSize),
                           bias = counted(kHeads);
  std::vector<float> decay(kHeads), columns;
  for (size_t i = 0; i < kHeads; ++i) decay[i] = -std::exp(bias[i]);
  for (size_t r = 0; r < 2; ++r) {
    const auto row = out.begin() + static_cast<std::ptrdiff_t>(r * kHeads * kSize);
    const auto there = tiled(std::vector<float>(row, row + kHeads * kSize), 0, kSize);
    columns.insert(columns.end(), there.begin(), there.end());
  }
  GgufBuilder b = tiled_metadata("qwen35", kSize);
  b.f32_tensor("blk.0.attn_qkv.weight", {kCols, kFront + kHeads * kSize}, tiled(qkv, kFront * kCols, kSize * kCols));
  b.f32_tensor("blk.0.ssm_out.weight", {kHeads * kSize, 2}, columns);
  b.f32_tensor("blk.0.ssm_dt.bias", {kHeads}, tiled(bias, 0, 1));
  b.f32_tensor("blk.0.ssm_a", {kHeads}, tiled(decay, 0, 1));
  const std::string bytes = b.finish();
  auto c = Checkpoint::from_gguf(std::move(GgufFile::parse(bytes_of(bytes), "t")).value(), models::families());
  ASSERT_TRUE(c.is_ok()) << c.status().message();
  const auto read = [&](const std::string& name, int64_t first, int64_t rows, bool packed) {
    const CheckpointTensor& t = *c->find("model.layers.0.linear_attn." + name);
    std::vector<float> x(static_cast<size_t>(rows * t.row_elements()));
    const Status status =
        packed ? c->read_packed_rows(t, first, rows, x.data()) : c->read_rows(t, first, rows, DType::F32, x.data());
    EXPECT_TRUE(status.is_ok()) << status.message();
    return x;
  };
  for (bool packed : {false, true}) {
    EXPECT_EQ(read("in_proj_qkv.weight", 0, kFront + kHeads * kSize, packed), qkv);
    const std::vector<float> part = read("in_proj_qkv.weight", kFront + 5, 3, packed);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), qkv.begin() + (kFront + 5) * kCols));
    EXPECT_EQ(read("out_proj.weight", 0, 2, packed), out);
  }
  EXPECT_EQ(read("dt_bias", 0, 1, false), bias);
  const std::vector<float> logs = read("A_log", 0, 1, false);
  for (size_t i = 0; i < kHeads; ++i) EXPECT_NEAR(logs[i], bias[i], 1e-6);
}

// Blocks of columns move as they are; where a block has columns of two heads the rows are read as floats alone.
TEST(GgufHeads, BlocksOfColumnsMove) {
  constexpr size_t kHeads = size_t{kTiledKeys} * kTiledEach;
  struct Case {
    uint32_t type;
    size_t elements, bytes, size;  // of a block, and of a head
  };
  for (const Case& of : {Case{8, 32, 34, 64}, Case{12, 256, 144, 256}, Case{12, 256, 144, 128}}) {
    const size_t blocks = kHeads * of.size / of.elements;
    std::vector<std::string> row;  // in Hugging Face's order, where a head has whole blocks
    for (size_t i = 0; i < blocks; ++i) {
      std::string block(of.bytes, static_cast<char>(i + 1));
      block[1] = '\x2c';  // the factor's upper byte: about 0.06
      row.push_back(block);
    }
    const bool whole = of.size % of.elements == 0;
    std::string stored;
    for (const std::string& block : whole ? tiled(row, 0, of.size / of.elements) : row) stored += block;
    GgufBuilder b = tiled_metadata("qwen35moe", static_cast<uint32_t>(of.size));
    b.tensor("blk.0.ssm_out.weight", {kHeads * of.size, 1}, of.type, stored);
    const std::string bytes = b.finish();
    auto c = Checkpoint::from_gguf(std::move(GgufFile::parse(bytes_of(bytes), "t.gguf")).value(), models::families());
    ASSERT_TRUE(c.is_ok()) << c.status().message();
    const CheckpointTensor& t = *c->find("model.layers.0.linear_attn.out_proj.weight");
    EXPECT_EQ(t.whole_blocks(), whole);
    std::string packed(stored.size(), '\0');
    const Status status = c->read_packed_rows(t, 0, 1, packed.data());
    auto plan = make_quant_plan(Quantization::Auto, {}, &*c);
    ASSERT_TRUE(plan.is_ok()) << plan.status().message();
    if (whole) {
      std::string want;
      for (const std::string& block : row) want += block;
      EXPECT_TRUE(packed == want);
      EXPECT_EQ(plan->of(t.name).scheme, LinearScheme::Packed);
      continue;
    }
    expect_error(status, {"out_proj.weight", "a block of Q4_K has columns of several heads, of 128 each"});
    EXPECT_EQ(plan->of(t.name).scheme, LinearScheme::Float);
    EXPECT_EQ(plan->of(t.name).unpacked, "Q4_K out_proj");
    // The floats are those of the file, whose heads change places.
    std::vector<float> floats(kHeads * of.size), there(floats.size());
    ASSERT_TRUE(c->read_rows(t, 0, 1, DType::F32, floats.data()).is_ok());
    const BlockLayout layout = block_layout(t.type);
    ASSERT_TRUE(convert_elements(t.type, bytes_of(stored), DType::F32, there.data(), blocks * layout.elements, nullptr)
                    .is_ok());
    EXPECT_EQ(tiled(floats, 0, of.size), there);
  }
}

TEST(GgufHeads, Errors) {
  const auto status = [](const GgufBuilder& b) {
    const std::string bytes = b.finish();
    return Checkpoint::from_gguf(std::move(GgufFile::parse(bytes_of(bytes), "t.gguf")).value(), models::families())
        .status();
  };
  const auto model = [](uint32_t keys, uint32_t heads, uint32_t values) {
    GgufBuilder b;
    b.str("general.architecture", "qwen35").u32("qwen35.ssm.group_count", keys);
    return b.u32("qwen35.ssm.time_step_rank", heads)
        .u32("qwen35.ssm.state_size", 8)
        .u32("qwen35.ssm.inner_size", values);
  };
  const std::vector<float> ten(10);
  EXPECT_TRUE(status(model(2, 4, 12)).is_ok());
  EXPECT_TRUE(status(model(2, 4, 12).f32_tensor("blk.0.ssm_out.weight", {12, 1}, std::vector<float>(12))).is_ok());
  expect_error(status(GgufBuilder().str("general.architecture", "qwen35")), {"qwen35.ssm.group_count", "missing"});
  expect_error(status(model(2, 5, 10)), {"qwen35.ssm.time_step_rank", "5", "multiples of the key heads 2"});
  expect_error(status(model(0, 4, 12)), {"qwen35.ssm.group_count", "allowed: 1 to"});
  expect_error(status(model(2, 4, 12).f32_tensor("blk.0.ssm_out.weight", {10, 1}, ten)),
               {"blk.0.ssm_out.weight", "10 columns", "12"});
  expect_error(status(model(2, 4, 12).f32_tensor("blk.0.attn_gate.weight", {1, 10}, ten)),
               {"blk.0.attn_gate.weight", "10 rows", "12"});
  expect_error(status(model(2, 4, 12).f32_tensor("blk.0.ssm_a", {10}, ten)), {"blk.0.ssm_a", "10 rows", "4"});
}

}  // namespace
}  // namespace reprise::checkpoint::gguf_heads_test
