// The way from a thunk to its kernels, where nvcc's half and the other half of the backend meet.
#pragma once

#include "device/thunk.h"

struct CUstream_st;

namespace reprise::cuda {

class Blas;

struct Launched {
  const char* failure = nullptr;  // the words of the part that refused
  bool foreign = false;           // kernels of a library are among the launched
};

// Runs the thunk's parts. Errors of the runtime are left on its record.
Launched launch_all(const Thunk& thunk, const LiveSizes& live, CUstream_st* stream, int multiprocessors, Blas* blas);

}  // namespace reprise::cuda
