#include "backends/cuda/register.h"

#include "backends/cuda/kernels/rotation_limits.h"

namespace reprise::cuda {

namespace {

// Kernels of extensions launch by themselves (passes/extension_api.h: reprise_cuda_kernel).
void run_foreign(const LaunchArgs& args, const LiveSizes& live, Launch& launch) {
  using Foreign = void (*)(const LaunchArgs* args, const int64_t* live, void* stream);
  for (const OpaqueKernel part : *static_cast<const ForeignParts*>(args.constant))
    if (part) reinterpret_cast<Foreign>(part)(&args, live.value.data(), launch.native_stream);
}

}  // namespace

void register_cuda(KernelRegistry& kernels, const KernelTable& table) {
  kernels.add_foreign(DeviceKind::Cuda, opaque(run_foreign));
  register_elements(kernels, table);
  register_rotation(kernels, table);
  register_products(kernels, table);
  register_attention(kernels, table);
  register_recurrent(kernels, table);
  register_encoder(kernels, table);
}

Status want_head(const OpCall& c, Dim size) {
  if (size.is_constant() && size.factor % 2 == 0 && size.factor >= 2 && size.factor <= kLargestHead)
    return Status::ok();
  return error(Code::Unsupported, "takes even head sizes from 2 to {}, not {} of {}", kLargestHead, size.factor,
               describe(c));
}

void Entries::add(std::string_view op, const PerType& kernels, const Extras& extras) {
  const auto one = [&](DType t, CudaKernel kernel) {
    Extras mine = extras;
    if (t == DType::F32 && !extras.f32_scratch) mine.scratch = {};
    add(op, EntryTypes(t, extras.other.value_or(t)), kernel, mine);
  };
  one(DType::F32, kernels.f32);
  one(DType::BF16, kernels.bf16);
  one(DType::F16, kernels.f16);
}

void Entries::add(std::string_view op, std::optional<EntryTypes> types, CudaKernel kernel, const Extras& extras) {
  if (!kernel) return;
  KernelEntry e = entry_of({.device = DeviceKind::Cuda,
                            .op = op,
                            .types = types,
                            .accepts = extras.accepts,
                            .bind = extras.bind,
                            .scratch = extras.scratch});
  e.library = extras.library;
  e.part[0] = opaque(kernel);
  kernels_.add(std::move(e));
}

}  // namespace reprise::cuda
