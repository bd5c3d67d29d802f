// Our own kernels as the trial of the vendor's library runs them (library.cu); read by nvcc alone.
#pragma once

#include "backends/cuda/device_launch.h"
#include "backends/cuda/kernels/elementwise.h"

namespace reprise::cuda {

// Products of bf16 and f16 (linear.cu), and sums of int8 products (linear_w8a8.cu).
void own_float_product(const Product& p, void* y, cudaStream_t stream);
void own_int8_product(const Product& p, void* y, cudaStream_t stream);

inline void own_product(const Product& p, void* y, cudaStream_t stream) {
  p.in == Number::I8 ? own_int8_product(p, y, stream) : own_float_product(p, y, stream);
}

}  // namespace reprise::cuda
