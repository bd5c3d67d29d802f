// Launches that are kept planned on the Ascend backend: what a repeated one costs the host on the simulator's clock,
// and that it computes what it should wherever it differs from the one before.
#include <gtest/gtest.h>

#include <cstring>

#include "backends/all.h"
#include "backends/ascend/operators.h"

namespace reprise::ascend_executors_test {
namespace {

using ascend::Launch;

// out = scalar * in, twice over.
Status scale(const LaunchArgs& args, const LiveSizes& live, Launch& l) {
  l.begin(args, live);
  const int64_t n = l.size(args.dim[0]);
  void* between = l.scratch(static_cast<size_t>(n) * sizeof(float));
  for (const auto& [from, to] : {std::pair{args.ptr[0], between}, std::pair{between, args.ptr[1]}})
    RETURN_IF_ERROR(l.run(l.ops().muls, l.tensor(from, DType::F32, {n}), l.number(static_cast<float>(args.scalar[0])),
                          l.tensor(to, DType::F32, {n})));
  return Status::ok();
}

class Executors : public testing::Test {
 protected:
  void SetUp() override {
    DeviceOptions options;
    options.kind = DeviceKind::Ascend;
    options.ascend_runtime = "sim";
    auto platform = make_platform(options);
    ASSERT_TRUE(platform.is_ok()) << platform.status().message();
    platform_ = std::move(*platform);
    device_ = platform_.device.get();
    auto stream = device_->make_stream();
    ASSERT_TRUE(stream.is_ok()) << stream.status().message();
    stream_ = std::move(*stream);
    for (Buffer* b : {&in_, &out_, &other_, &workspace_}) {
      auto made = device_->pool().allocate(4096, "test");
      ASSERT_TRUE(made.is_ok()) << made.status().message();
      *b = std::move(*made);
    }
    auto host = device_->host_pool().allocate(4096, "test");
    ASSERT_TRUE(host.is_ok()) << host.status().message();
    host_ = std::move(*host);
    for (int i = 0; i < 16; ++i) host_.as<float>()[i] = static_cast<float>(i);
    ASSERT_TRUE(stream_->copy(in_.data(), host_.data(), 64, Copy::HostToDevice).is_ok());
    ASSERT_TRUE(stream_->synchronize().is_ok());
    thunk_.part[0] = ascend::opaque(scale);
    thunk_.args.ptr[0] = in_.data();
    thunk_.args.ptr[1] = out_.data();
    thunk_.args.dim[0] = Dim(1, 1);
    thunk_.args.scalar[0] = 3;
    thunk_.args.workspace = workspace_.data();
    thunk_.args.workspace_bytes = 4096;
    sizes(4);
  }

  void sizes(int64_t n) {
    LiveSizes live;
    live.value[1] = n;
    stream_->set_live_sizes(live);
  }

  // Microseconds of the host's modelled time that a launch takes.
  double launch() {
    const double before = *device_->clock_us();
    const Status launched = stream_->launch(thunk_);
    EXPECT_TRUE(launched.is_ok()) << launched.message();
    return *device_->clock_us() - before;
  }

  std::vector<float> read(const Buffer& from, size_t n) {
    EXPECT_TRUE(stream_->copy(host_.data(), from.data(), n * 4, Copy::DeviceToHost).is_ok());
    EXPECT_TRUE(stream_->synchronize().is_ok());
    return {host_.as<float>(), host_.as<float>() + n};
  }

  Platform platform_;
  Device* device_ = nullptr;
  Buffer in_, out_, other_, workspace_, host_;
  std::unique_ptr<Stream> stream_;
  Thunk thunk_;
};

TEST_F(Executors, ARepeatedLaunchIsPlannedOnce) {
  const double first = launch(), second = launch(), third = launch();
  EXPECT_GT(first, 60 + 2 * 5) << "planned for the first time";
  EXPECT_DOUBLE_EQ(second, third);
  EXPECT_NEAR(second, 2 * 5, 1) << "the second phase of two operators";
  EXPECT_EQ(read(out_, 4), (std::vector<float>{0, 9, 18, 27}));
}

TEST_F(Executors, WhatDiffersIsPlannedAnew) {
  launch();
  thunk_.args.ptr[1] = other_.data();
  EXPECT_GT(launch(), 2 * 5 + 2 * 7) << "other addresses: the library's own cache of plans helps, no more";
  thunk_.args.scalar[0] = 2;
  launch();
  EXPECT_EQ(read(other_, 4), (std::vector<float>{0, 4, 8, 12}));
  EXPECT_EQ(read(out_, 4), (std::vector<float>{0, 9, 18, 27}));
  sizes(6);
  EXPECT_GT(launch(), 60 + 2 * 5);
  EXPECT_EQ(read(other_, 6), (std::vector<float>{0, 4, 8, 12, 16, 20}));
  sizes(4);
  thunk_.args.scalar[0] = 3;
  thunk_.args.ptr[1] = out_.data();
  EXPECT_NEAR(launch(), 2 * 5, 1) << "the first one is still there";
}

// A launch that reads the host may enqueue something else every time.
TEST_F(Executors, WhatReadsTheHostIsPlannedEveryTime) {
  const int32_t length = 4;
  thunk_.args.host[0] = &length;
  launch();
  EXPECT_GT(launch(), 2 * 5 + 2 * 7);
}

TEST_F(Executors, FailedLaunchesAreNotKept) {
  thunk_.args.workspace_bytes = 0;
  EXPECT_FALSE(stream_->launch(thunk_).is_ok());
  thunk_.args.workspace_bytes = 4096;
  launch();
  EXPECT_EQ(read(out_, 4), (std::vector<float>{0, 9, 18, 27}));
}

// Memory beside the plan grows, and what was handed out stays: queued work names it.
TEST_F(Executors, SpareWorkspaceGrowsAndKeepsWhatItGave) {
  auto library = ascend::Library::open("sim");
  ASSERT_TRUE(library.is_ok()) << library.status().message();
  ascend::SpareWorkspace spare(**library);
  auto first = spare.at_least(1000, "one"), again = spare.at_least(1000, "one"), larger = spare.at_least(1001, "two");
  ASSERT_TRUE(first.is_ok() && again.is_ok() && larger.is_ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *larger);
  EXPECT_EQ(*spare.at_least(2000, "two"), *larger) << "it doubles";
  const auto refused = spare.at_least(size_t{1} << 50, "three");
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), Code::OutOfMemory) << refused.status().message();
  EXPECT_NE(refused.status().message().find("three"), std::string::npos);
}

}  // namespace
}  // namespace reprise::ascend_executors_test
