// int8 weights in FRACTAL_NZ on the Ascend backend over the simulator: packed in pieces, and multiplied to the bits
// that the same weights give as rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "backends/all.h"
#include "ops/core.h"

namespace reprise {
namespace {

class Fractal : public testing::Test {
 protected:
  void SetUp() override {
    DeviceOptions options;
    options.kind = DeviceKind::Ascend;
    options.ascend_runtime = "sim";
    auto platform = make_platform(options);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    platform_ = std::move(*platform);
    auto stream = platform_.device->make_stream();
    ASSERT_TRUE(stream.is_ok()) << stream.status().message();
    stream_ = std::move(*stream);
    layout_ = platform_.kernels->layout(DeviceKind::Ascend, "fractal_nz");
    ASSERT_NE(layout_, nullptr);
  }

  static int8_t value(int64_t row, int64_t column) { return static_cast<int8_t>((row * 31 + column * 7) % 251 - 125); }
  static std::vector<int8_t> matrix(int64_t rows, int64_t columns) {
    std::vector<int8_t> out;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) out.push_back(value(r, c));
    return out;
  }

  std::vector<int8_t> packed(const TensorType& type, int64_t rows_at_once) const {
    const int64_t n = type.shape[0].factor, k = type.shape[1].factor;
    const std::vector<int8_t> rows = matrix(n, k);
    std::vector<int8_t> out(layout_->bytes(type), 0);
    for (int64_t first = 0; first < n; first += rows_at_once)
      layout_->pack(type, out.data(), rows.data() + first * k, first, std::min(rows_at_once, n - first));
    return out;
  }

  Buffer on_device(const void* data, size_t bytes) {
    auto host = platform_.device->host_pool().allocate(bytes, "test");
    auto device = platform_.device->pool().allocate(bytes, "test");
    EXPECT_TRUE(host.is_ok() && device.is_ok());
    std::memcpy(host->data(), data, bytes);
    EXPECT_TRUE(stream_->copy(device->data(), host->data(), bytes, Copy::HostToDevice).is_ok());
    EXPECT_TRUE(stream_->synchronize().is_ok());
    return std::move(*device);
  }

  // linear_w8a8_dynamic by the entry of that name; the bits of bf16 results.
  std::vector<uint16_t> product(const std::string& name, int64_t t, int64_t n, int64_t k,
                                const std::vector<int8_t>& stored) {
    const KernelEntry* entry = platform_.kernels->find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (!entry) return {};
    const std::vector<TensorType> in{{DType::I8, {Dim(t), Dim(k)}},
                                     {DType::F32, {Dim(t), Dim(1)}},
                                     {DType::I8, {Dim(n), Dim(k)}},
                                     {DType::F32, {Dim(n)}}};
    const std::vector<TensorType> out{{DType::BF16, {Dim(t), Dim(n)}}};
    Attrs attrs{{"out", std::string("bf16")}};
    const OpSchema* op = platform_.ops->find("linear_w8a8_dynamic");
    const Status complete = check_attrs(*op, attrs);
    EXPECT_TRUE(complete.is_ok()) << complete.message();
    const OpCall call{op, in, out, &attrs, {}};
    const Status accepted = entry->accepts(call);
    EXPECT_TRUE(accepted.is_ok()) << accepted.message();
    const std::vector<int8_t> x = matrix(t, k);
    std::vector<float> row_scales(static_cast<size_t>(t)), scales(static_cast<size_t>(n));
    for (size_t i = 0; i < row_scales.size(); ++i) row_scales[i] = 0.01f + 0.001f * static_cast<float>(i);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.02f + 0.0003f * static_cast<float>(i);
    const std::vector<uint16_t> zeros(static_cast<size_t>(t * n), 0);
    const LiveSizes live;
    const size_t bytes = entry->workspace(call, live, 1);
    const std::vector<uint8_t> room(bytes + 64, 0);
    const Buffer buffers[] = {on_device(x.data(), x.size()),
                              on_device(row_scales.data(), row_scales.size() * 4),
                              on_device(stored.data(), stored.size()),
                              on_device(scales.data(), scales.size() * 4),
                              on_device(zeros.data(), zeros.size() * 2),
                              on_device(room.data(), room.size())};
    Thunk thunk;
    thunk.phase = entry->phase;
    for (size_t i = 0; i < 4; ++i) thunk.args.ptr[i] = buffers[i].data();
    thunk.args.ptr[op->operands.size()] = buffers[4].data();
    thunk.args.workspace = buffers[5].data();
    thunk.args.workspace_bytes = bytes;
    entry->bind(call, thunk.args);
    stream_->set_live_sizes(live);
    const Status launched = stream_->launch(thunk);
    EXPECT_TRUE(launched.is_ok()) << launched.message();
    auto back = platform_.device->host_pool().allocate(zeros.size() * 2, "test");
    EXPECT_TRUE(stream_->copy(back->data(), buffers[4].data(), zeros.size() * 2, Copy::DeviceToHost).is_ok());
    EXPECT_TRUE(stream_->synchronize().is_ok());
    return {back->as<uint16_t>(), back->as<uint16_t>() + zeros.size()};
  }

  Platform platform_;
  std::unique_ptr<Stream> stream_;
  const ParamLayout* layout_ = nullptr;
};

TEST_F(Fractal, RowsGoToTheirBlocks) {
  const TensorType type{DType::I8, {Dim(50), Dim(70)}};
  const std::vector<int8_t> all = packed(type, 50);
  ASSERT_EQ(all.size(), 3u * 4u * 16u * 32u);  // [70 / 32, 50 / 16, 16, 32]
  EXPECT_EQ(packed(type, 7), all);
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t c = 0; c < 96; ++c) {
      const auto at = static_cast<size_t>(((c / 32 * 4 + r / 16) * 16 + r % 16) * 32 + c % 32);
      ASSERT_EQ(all[at], r < 50 && c < 70 ? value(r, c) : 0) << r << " " << c;
    }
}

TEST_F(Fractal, ProductsAreThoseOfRows) {
  for (const auto& [t, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 16, 32}, {5, 50, 70}, {17, 96, 64}}) {
    const TensorType type{DType::I8, {Dim(n), Dim(k)}};
    const auto rows = product("ascend.linear_w8a8_dynamic", t, n, k, matrix(n, k));
    const auto blocks = product("ascend.linear_w8a8_dynamic.nz", t, n, k, packed(type, n));
    EXPECT_EQ(rows, blocks) << t << " " << n << " " << k;
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [](uint16_t x) { return x != 0; }));
  }
}

// What the vendor refuses runs on rows.
TEST_F(Fractal, AMatrixOfOneRowIsNotFractal) {
  const std::vector<TensorType> in{{DType::I8, {Dim(4), Dim(32)}},
                                   {DType::F32, {Dim(4), Dim(1)}},
                                   {DType::I8, {Dim(1), Dim(32)}},
                                   {DType::F32, {Dim(1)}}};
  const std::vector<TensorType> out{{DType::BF16, {Dim(4), Dim(1)}}};
  Attrs attrs{{"out", std::string("bf16")}};
  const OpSchema* op = platform_.ops->find("linear_w8a8_dynamic");
  ASSERT_TRUE(check_attrs(*op, attrs).is_ok());
  auto chosen = platform_.kernels->choose(DeviceKind::Ascend, {op, in, out, &attrs, {}});
  ASSERT_TRUE(chosen.is_ok()) << chosen.status().message();
  EXPECT_EQ((*chosen)->name, "ascend.linear_w8a8_dynamic");
  EXPECT_TRUE((*chosen)->param_layouts.empty());
}

}  // namespace
}  // namespace reprise
