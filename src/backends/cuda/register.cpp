// The entries of the CUDA kernels. One op for now: it keeps the way from a graph to a GPU honest.
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/kernels/add.h"

namespace reprise::cuda {
namespace {

Status accepts_add(const OpCall& c) {
  if (c.in[0].dtype != DType::F32) return error(Code::Unsupported, "takes f32, not {}", describe(c));
  const Shape& s = c.in[0].shape;
  for (int i = 1; i < s.rank(); ++i)
    if (!s[i].is_constant()) return error(Code::Unsupported, "size {} of {} is not a constant", i, describe(c));
  return Status::ok();
}

void bind_add(const OpCall& c, LaunchArgs& args) {
  const Shape& s = c.in[0].shape;
  int64_t row = 1;
  for (int i = 1; i < s.rank(); ++i) row *= s[i].factor;
  args.dim[0] = s[0];
  args.dim[1] = row;
}

}  // namespace

void register_cuda(KernelRegistry& kernels) {
  KernelEntry e;
  e.name = "cuda.add.f32";
  e.op = "add";
  e.device = DeviceKind::Cuda;
  e.score = 100;
  e.accepts = accepts_add;
  e.bind = bind_add;
  e.phase[0] = opaque(add_f32);
  kernels.add(std::move(e));
}

}  // namespace reprise::cuda
