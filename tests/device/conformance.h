// The conformance list's subjects and its fixture: what every device must do, written against device/*.h alone.
//
// A subject is one way to make a device, with three toy kernels of its own. The checks (pool_, stream_ and
// capture_conformance_test.cpp) run once per subject; a check that a device cannot pass is in one of its two exclusion
// lists with a reason. Checks that need a capability ask DeviceInfo for it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/toys.h"

namespace reprise::conformance {

struct Subject {
  std::string name;
  // Unsupported: this machine or build does not have it, and its checks are skipped with that reason.
  std::function<Result<std::shared_ptr<Device>>()> make;
  Toys toys;
  // "Pool.IsZeroFilled" -> why not. `never`: the device cannot, for good. `not_yet`: it should; these run when
  // REPRISE_DEVICE_NOT_YET is 1.
  std::map<std::string, std::string> never, not_yet;
};

// Every device this repository knows.
const std::vector<Subject>& subjects();
inline void PrintTo(const Subject& s, std::ostream* out) { *out << s.name; }

class Conformance : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override;

  const DeviceInfo& info() const { return device->info(); }
  std::unique_ptr<Stream> new_stream();
  // `bytes` of device memory; CHECKs.
  Buffer memory(size_t bytes) { return device->pool().allocate(bytes, "conformance").value(); }
  Buffer floats(size_t n) { return memory(n * sizeof(float)); }

  // There and back through the device's host memory, waiting for everything on `stream`.
  void write(const Buffer& to, const void* data, size_t bytes);
  void write(const Buffer& to, const std::vector<float>& values);
  std::vector<uint8_t> read_bytes(const Buffer& from);
  std::vector<float> read(const Buffer& from);

  Thunk thunk(OpaqueKernel kernel, const Buffer& from, const Buffer& to, Dim n, double scalar = 0) const;
  Thunk add(const Buffer& from, const Buffer& to, Dim n, double by) const {
    return thunk(GetParam().toys.add, from, to, n, by);
  }
  Thunk scale(const Buffer& from, const Buffer& to, Dim n, double by) const {
    return thunk(GetParam().toys.scale, from, to, n, by);
  }
  Thunk copy(const Buffer& from, const Buffer& to, Dim n) const { return thunk(GetParam().toys.copy, from, to, n); }

  // Records `thunks` as they are.
  std::unique_ptr<DeviceGraph> capture(const std::vector<Thunk>& thunks);

  std::shared_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

// 0.5, 1.5, 2.5, ...: sums and products with small numbers are exact.
std::vector<float> ramp(size_t n);
// ramp(n), each value changed by `f`.
std::vector<float> ramp(size_t n, const std::function<float(float)>& f);

#define EXPECT_OK(expr)                              \
  do {                                               \
    const ::reprise::Status expect_ok_ = (expr);     \
    EXPECT_TRUE(expect_ok_) << expect_ok_.message(); \
  } while (0)

#define REPRISE_CONFORMANCE(Suite)                                            \
  class Suite : public ::reprise::conformance::Conformance {};                \
  INSTANTIATE_TEST_SUITE_P(                                                   \
      Device, Suite, ::testing::ValuesIn(::reprise::conformance::subjects()), \
      [](const ::testing::TestParamInfo<::reprise::conformance::Subject>& i) { return i.param.name; })

}  // namespace reprise::conformance
