// REPRISE_KERNEL and REPRISE_KERNELS, by which the files of this folder define kernels.
//
// Files in this folder are compiled once per instruction set (those of products also for tile registers) and define
// their functions in the namespace of that set. They hold nothing but kernels: no containers, strings or other inline
// library code, because the linker keeps one copy of an inline function for the whole program and it might keep the
// AVX-512 one. The list of kernels is table.h, which they do not include: a new kernel compiles none of the others
// again.
#pragma once

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"

// Defines a kernel by its body, void(const Args&, const Launch&) with the struct of the op; it may be a template's name
// with its arguments.
#define REPRISE_KERNEL(name, ...)                                                     \
  void name(const LaunchArgs& args, const LiveSizes& live, int thread, int threads) { \
    enter(args, live, thread, threads, __VA_ARGS__);                                  \
  }
// Defines NAME_f32, NAME_bf16 and NAME_f16 by a template over the storage types of elements.h; what follows its name
// are its other arguments.
#define REPRISE_KERNELS(name, body, ...)                             \
  REPRISE_KERNEL(name##_f32, body<F32 __VA_OPT__(, ) __VA_ARGS__>)   \
  REPRISE_KERNEL(name##_bf16, body<Bf16 __VA_OPT__(, ) __VA_ARGS__>) \
  REPRISE_KERNEL(name##_f16, body<F16 __VA_OPT__(, ) __VA_ARGS__>)
// The same of products of floats: on tile registers those of bf16 alone, and the others are those of AVX-512.
#ifdef REPRISE_TILES
#define REPRISE_PRODUCTS(name, body) REPRISE_KERNEL(name##_bf16, body<Bf16>)
#else
#define REPRISE_PRODUCTS(name, body) REPRISE_KERNELS(name, body)
#endif
