// What `reprise doctor` measures of a device with memory of its own, on one that the SIMT executor computes for.
#include "measurement/device_probe.h"

#include <gtest/gtest.h>

#include "simt/kernels.h"

namespace reprise::measurement::device_probe_test {
namespace {

Result<Platform> stand_in_platform() {
  DeviceOptions o;
  o.kind = DeviceKind::Cuda;
  o.cuda_stand_in = &simt::stand_in();
  return make_platform(o);
}

TEST(CudaDeviceProbe, CopiesAndMultiplies) {
  const auto platform = stand_in_platform();
  ASSERT_TRUE(platform.is_ok()) << platform.status().message();
  ASSERT_TRUE(has_device_speed(*platform->device));
  const auto speed = measure_device(*platform, {.bytes = size_t{1} << 16, .size = 32});
  ASSERT_TRUE(speed.is_ok()) << speed.status().message();
  for (const double figure : {speed->copy_GBps, speed->to_device_GBps, speed->to_host_GBps, speed->round_trip_us})
    EXPECT_GT(figure, 0);
  ASSERT_TRUE(speed->bf16_tflops.has_value());
  EXPECT_GT(*speed->bf16_tflops, 0);
  EXPECT_EQ(speed->size, 32);
}

TEST(CudaDeviceProbe, NoMemoryIsAnError) {
  const auto platform = stand_in_platform();
  ASSERT_TRUE(platform.is_ok()) << platform.status().message();
  EXPECT_FALSE(measure_device(*platform, {.bytes = SIZE_MAX / 8}).is_ok());
}

}  // namespace
}  // namespace reprise::measurement::device_probe_test
