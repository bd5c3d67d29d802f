// CudaKernel: the type behind Thunk::phase on a CUDA device.
//
// It is a host function that launches kernels on the stream and returns at once; all it reads are its arguments. It
// may not wait, allocate or copy to the host. Phases run in order. Under capture the same function runs once, its
// launches become nodes of the graph, and their sizes are those of the capture. A launch of nothing is left out: a grid
// of no blocks is an error. No vendor header, so that entries can be registered from plain C++.
#pragma once

#include "device/thunk.h"

struct CUstream_st;  // what cudaStream_t points to

namespace reprise::cuda {

using CudaKernel = void (*)(const LaunchArgs& args, const LiveSizes& live, CUstream_st* stream);

inline OpaqueKernel opaque(CudaKernel kernel) { return reinterpret_cast<OpaqueKernel>(kernel); }

}  // namespace reprise::cuda
