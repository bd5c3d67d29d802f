// Staged inputs on a device whose memory the host cannot touch: what a step does not use is not sent.
#include <gtest/gtest.h>

#include "compile/staging.h"
#include "graph/tracer.h"
#include "ops/core.h"
#include "support/taking_device.h"

namespace reprise::staging_test {
namespace {

TEST(Staging, OfTheLargestInputOnlyWhatIsUsedIsSent) {
  OpRegistry ops;
  register_core_ops(ops);
  Tracer t("g", ops);
  t.input("long", {DType::I32, {Dim(1000)}});
  t.input("short", {DType::I32, {Dim(3)}});
  auto graph = t.finish();
  ASSERT_TRUE(graph.is_ok()) << graph.status().message();
  testing_support::Taken taken;
  testing_support::TakingDevice device({}, taken);
  Staging staging;
  staging.declare(*graph, {});
  ASSERT_TRUE(staging.allocate(device).is_ok());
  auto stream = device.make_stream();
  ASSERT_TRUE(stream.is_ok());
  const auto write = [&](int32_t value) {
    for (const char* name : {"long", "short"}) {
      auto view = staging.input(name, staging.selected());
      ASSERT_TRUE(view.is_ok());
      std::fill_n(static_cast<int32_t*>(view->data), view->elements(), value);
    }
  };
  // What the device has of an input, and the bytes that were sent.
  const auto sent = [&] {
    const uint64_t before = (*stream)->stats().bytes_to_device;
    EXPECT_TRUE(staging.upload(**stream).is_ok());
    EXPECT_TRUE((*stream)->synchronize().is_ok());
    return (*stream)->stats().bytes_to_device - before;
  };
  const auto on_device = [&](const char* name, int64_t count) {
    std::vector<int32_t> out(static_cast<size_t>(count));
    EXPECT_TRUE((*stream)->copy(out.data(), staging.address(name), out.size() * 4, Copy::DeviceToHost).is_ok());
    EXPECT_TRUE((*stream)->synchronize().is_ok());
    return out;
  };
  write(1);
  const uint64_t all = sent();
  EXPECT_GE(all, 4012u);
  write(2);
  staging.use("long", 10);
  EXPECT_EQ(sent(), all - 4 * 990);
  EXPECT_EQ(on_device("short", 3), std::vector<int32_t>(3, 2));
  std::vector<int32_t> want(1000, 1);
  std::fill_n(want.begin(), 10, 2);
  EXPECT_EQ(on_device("long", 1000), want);
  // Nothing of it: the others are there. Selecting a slot forgets what was said.
  write(3);
  staging.use("long", 0);
  EXPECT_LT(sent(), 100u);
  EXPECT_EQ(on_device("short", 3), std::vector<int32_t>(3, 3));
  EXPECT_EQ(on_device("long", 1000), want);
  staging.select(0);
  EXPECT_EQ(sent(), all);
  EXPECT_EQ(on_device("long", 1000), std::vector<int32_t>(1000, 3));
}

}  // namespace
}  // namespace reprise::staging_test
