// A CUDA kernel of an extension: called with the arguments of the C interface and the stream, in place of a Launch.
#include "passes/extension.h"

#include <gtest/gtest.h>

#include "simt/cuda_runner.h"

namespace reprise::simt {
namespace {

Result<Platform> platform() {
  DeviceOptions o;
  o.kind = DeviceKind::Cuda;
  o.cuda_stand_in = &stand_in();
  ASSIGN_OR_RETURN(Platform p, make_platform(o));
  RETURN_IF_ERROR(load_extension(REPRISE_EXTENSIONS "other_devices.so", p));
  return p;
}

TEST(CudaExtension, IsCalledWithTheStream) {
  auto p = platform();
  ASSERT_TRUE(p.is_ok()) << p.status().message();
  const TensorType numbers{DType::F32, {Dim(3)}};
  const std::vector<TensorType> in{numbers, numbers}, out{numbers};
  const Attrs attrs;
  const OpCall call{p->ops->find("add"), in, out, &attrs, {}};
  const auto entry = p->kernels->choose(DeviceKind::Cuda, call);
  ASSERT_TRUE(entry.is_ok()) << entry.status().message();
  ASSERT_EQ((*entry)->name, "cuda.add.mine");

  const float x[] = {1, 2, 3}, y[] = {10, 20, 30};
  struct {
    void* stream = nullptr;
    float z[3] = {};
  } result;
  LaunchArgs args;
  args.ptr = {const_cast<float*>(x), const_cast<float*>(y), &result};
  (*entry)->bind(call, args);
  LiveSizes live;
  live.value[3] = 2;
  Launch launch;
  launch.native_stream = &launch;
  for (OpaqueKernel part : (*entry)->part)
    if (part) reinterpret_cast<cuda::CudaKernel>(part)(args, live, launch);
  EXPECT_EQ(result.stream, &launch);
  EXPECT_EQ(result.z[0], 23);
  EXPECT_EQ(result.z[1], 45);
  EXPECT_EQ(result.z[2], 0) << "behind the live size";
}

}  // namespace
}  // namespace reprise::simt
