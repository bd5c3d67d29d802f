// register_cuda: every entry of the CUDA device, by explicit calls; what these have in common. The functions behind the
// entries come from a table: a GPU's (cuda_device.h), or the SIMT executor's (sim/simt).
#pragma once

#include "backends/cuda/kernel_table.h"
#include "ops/kernel.h"

namespace reprise::cuda {

void register_elements(KernelRegistry& kernels, const KernelTable& table);   // number by number, copies of rows
void register_norms(KernelRegistry& kernels, const KernelTable& table);      // norms, rotation, cache writes
void register_products(KernelRegistry& kernels, const KernelTable& table);   // linear, heads, argmax
void register_attention(KernelRegistry& kernels, const KernelTable& table);  // paged attention
void register_quantised(KernelRegistry& kernels, const KernelTable& table);  // int8
void register_experts(KernelRegistry& kernels, const KernelTable& table);    // mixtures of experts
void register_latent(KernelRegistry& kernels, const KernelTable& table);     // multi-head latent attention

void register_cuda(KernelRegistry& kernels, const KernelTable& table);

// Weights in GGUF blocks, which register_cuda() leaves out: these kernels are chains of fp32 on the plain cores, slower
// than the tensor cores are on the same weights unpacked to bf16, as loading does where no kernel takes blocks.
void register_packed(KernelRegistry& kernels, const KernelTable& table);

using Accepts = Status (*)(const OpCall&);
using Bind = void (*)(const OpCall&, LaunchArgs&);
using Workspace = size_t (*)(const OpCall&, const LiveSizes&, int);

// An entry "cuda.OP.TYPES" ("cuda.OP" where one kernel serves every dtype), row-major parameters. Nothing is added for
// a kernel that the table lacks.
void add_entry(KernelRegistry& kernels, std::string_view op, std::string_view types, Accepts accepts, Bind bind,
               CudaKernel kernel, Workspace workspace = nullptr);

// Operand i has this dtype.
Status want_type(const OpCall& c, size_t i, DType type);
// Every size of operand i behind the first is a constant.
Status want_constant_rows(const OpCall& c, size_t i);

// The first operand has this dtype and rows of a constant size.
template <DType T>
Status accepts_rows_of(const OpCall& c) {
  RETURN_IF_ERROR(want_type(c, 0, T));
  return want_constant_rows(c, 0);
}

// The sizes [from, to) of a shape multiplied; at most one has a symbol.
Dim product_of(const Shape& s, int from, int to);

}  // namespace reprise::cuda
