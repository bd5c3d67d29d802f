// ComputingPlatform: each device that computes here, for tests that run on all of them: the CPU, a device whose memory
// the host cannot touch, and Ascend's simulator.
#pragma once

#include <gtest/gtest.h>

#include "backends/all.h"
#include "support/plain_kernels.h"
#include "support/taking_device.h"

namespace reprise::testing_support {

enum class ComputingPlatform { Cpu, Remote, Ascend };

inline const auto kComputingPlatforms =
    testing::Values(ComputingPlatform::Cpu, ComputingPlatform::Remote, ComputingPlatform::Ascend);

inline std::string computing_platform_name(const testing::TestParamInfo<ComputingPlatform>& info) {
  return info.param == ComputingPlatform::Cpu ? "Cpu" : info.param == ComputingPlatform::Remote ? "Remote" : "Ascend";
}

// The attention of the vendor has no fp32.
inline DType dtype_of(ComputingPlatform which) { return which == ComputingPlatform::Ascend ? DType::BF16 : DType::F32; }

// `taken` belongs to the remote device and outlives it.
inline Result<Platform> make_computing_platform(ComputingPlatform which, Taken& taken) {
  if (which == ComputingPlatform::Remote) {
    Platform p;
    p.ops = std::make_unique<OpRegistry>();
    register_core_ops(*p.ops);
    p.kernels = std::make_unique<KernelRegistry>();
    register_plain_kernels(*p.kernels);
    p.device = std::make_unique<TakingDevice>(TakingOptions{.skips_negative_slots = false}, taken);
    return p;
  }
  DeviceOptions device;
  if (which == ComputingPlatform::Ascend) device.kind = DeviceKind::Ascend;
  device.ascend_runtime = "sim";
  device.threads = 2;
  device.pin_threads = false;
  return make_platform(device);
}

}  // namespace reprise::testing_support
