// RankKernels: the host functions behind the entries of ops over ranks, once as the GPU's and once as the SIMT
// executor's, as KernelTable has those of one device.
//
// The constant of their launches is an Exchange, and their way the number of ranks.
#pragma once

#include "backends/cuda/kernel_table.h"

namespace reprise::cuda {

struct RankKernels {
  PerType all_reduce;
  CudaKernel all_gather = nullptr, gather_owned = nullptr, gather_groups = nullptr, local_ids = nullptr,
             own_groups = nullptr, own_slots = nullptr, own_cu_seqlens = nullptr, argmax_pairs = nullptr,
             merge_argmax = nullptr;
};

// For a GPU.
void fill_ranks(RankKernels& table);

}  // namespace reprise::cuda
