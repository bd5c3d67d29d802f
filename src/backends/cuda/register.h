// register_cuda: every entry of the CUDA device, by explicit calls; what these have in common. The functions behind the
// entries come from a table: a GPU's (cuda_device.h), or the SIMT executor's (sim/simt). Called once while the platform
// is made, on that thread; the registry owns the entries.
#pragma once

#include "backends/cuda/kernel_table.h"
#include "backends/cuda/rank_kernels.h"
#include "ops/args/entry.h"

namespace reprise::cuda {

void register_elements(KernelRegistry& kernels, const KernelTable& table);   // elements, rows, norms, int8 rows
void register_rotation(KernelRegistry& kernels, const KernelTable& table);   // rotation, cache writes
void register_products(KernelRegistry& kernels, const KernelTable& table);   // products, experts, argmax
void register_attention(KernelRegistry& kernels, const KernelTable& table);  // paged and latent attention
void register_recurrent(KernelRegistry& kernels, const KernelTable& table);  // layers with states
void register_encoder(KernelRegistry& kernels, const KernelTable& table);    // encoders, pooled rows, LoRA adapters

void register_cuda(KernelRegistry& kernels, const KernelTable& table);

class Communicator;
// What ranks exchange, where there are several.
void register_ranks(KernelRegistry& kernels, const RankKernels& table, const std::shared_ptr<Communicator>& ranks);

// Weights in GGUF blocks, which register_cuda() leaves out: these kernels are chains of fp32 on the plain cores, slower
// than the tensor cores are on the same weights unpacked to bf16, as loading does where no kernel takes blocks.
void register_packed(KernelRegistry& kernels, const KernelTable& table);

// The head size is even and at most kLargestHead.
Status want_head(const OpCall& c, Dim size);

// What an entry has besides its op, types and kernel.
struct Extras {
  std::optional<DType> other{};                    // of OpArgs::other, where all have the same
  std::function<Status(const OpCall&)> accepts{};  // what these kernels want besides OpArgs::accepts
  Scratch scratch{};
  std::function<void(const OpCall&, LaunchArgs&)> bind{};  // behind OpArgs::bind
  bool f32_scratch = true;                                 // false: only kernels of two bytes a number need it
  std::function<LibraryProduct(const OpCall&)> library{};  // KernelEntry::library
};

// Adds entries "cuda.OP.TYPES" ("cuda.OP" where one kernel serves every dtype), row-major parameters. Nothing is added
// for a kernel that the table lacks.
class Entries {
 public:
  explicit Entries(KernelRegistry& kernels) : kernels_(kernels) {}

  void add(std::string_view op, CudaKernel kernel, const Extras& extras = {}) { add(op, std::nullopt, kernel, extras); }
  void add(std::string_view op, const PerType& kernels, const Extras& extras = {});
  void add(std::string_view op, std::optional<EntryTypes> types, CudaKernel kernel, const Extras& extras);

 private:
  KernelRegistry& kernels_;
};

}  // namespace reprise::cuda
