// simt::Lane and simt::Launch: kernels of backends/cuda/kernels on the host.
//
// A lane is a fibre with a stack of its own; the fibres of a block take turns on the calling thread, in an order that
// the caller chooses; blocks run one after another. What a GPU leaves undefined is made visible here: shared memory
// starts as a pattern that is NaN in every float type, asynchronous copies arrive at the wait and not before, a lane
// that ends while others wait for it is an error, and so is a shuffle in which not all lanes take part. A Launch may be
// used by one thread at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "backends/cuda/cuda_kernel.h"
#include "backends/cuda/exchange.h"
#include "backends/cuda/kernels/lane.h"
#include "backends/cuda/kernels/product.h"

namespace reprise::simt {

class Block;

// One fibre's view of its block.
class Lane {
 public:
  Lane(Block& block, int thread) : block_of_(&block), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const;
  int block() const;
  int blocks() const;
  int block_y() const;
  int blocks_y() const;
  char* shared() const;
  void sync();
  void warp_sync();

  template <class T>
  T shuffle_xor(T v, int mask) {
    return shuffle(v, thread_ % 32 ^ mask);
  }
  template <class T>
  T shuffle(T v, int from) {
    static_assert(sizeof(T) <= kSlotBytes);
    std::memcpy(slot(thread_ % 32), &v, sizeof v);
    warp_sync();
    std::memcpy(&v, slot(from % 32), sizeof v);
    turn();
    return v;
  }

  void prefetch(const char* from, int bytes);
  void copy_async(void* to, const void* from, int bytes);
  void commit_copies() { groups_.push_back(copies_.size()); }
  template <int kLeft>
  void wait_copies() {
    arrive(kLeft);
  }

  template <bool kTransposed>
  void load_matrices(uint32_t (&r)[4], const void* row) {
    const char* slots = exchange(&row, sizeof row);
    const int me = thread_ % 32;
    for (int m = 0; m < 4; ++m) {
      auto of = [&](int i) {
        const uint16_t* it;
        std::memcpy(&it, slots + static_cast<size_t>(m * 8 + i) * kSlotBytes, sizeof it);
        return it;
      };
      const uint16_t first = kTransposed ? of(me % 4 * 2)[me / 4] : of(me / 4)[me % 4 * 2];
      const uint16_t second = kTransposed ? of(me % 4 * 2 + 1)[me / 4] : of(me / 4)[me % 4 * 2 + 1];
      r[m] = first | static_cast<uint32_t>(second) << 16;
    }
  }

  void mma(cuda::BF16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_float(d, a, b, true); }
  void mma(cuda::F16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_float(d, a, b, false); }
  void mma(cuda::I8, int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

  void begin();
  // What a lane that ends leaves behind must be nothing.
  void end();

 private:
  static constexpr size_t kSlotBytes = 32;
  struct Copy {
    void* to;
    const void* from;
    int bytes;
  };

  char* slot(int lane) const;
  void turn() { parity_ ^= 1; }
  void arrive(size_t left);
  // The slots of the warp's lanes, kSlotBytes each in order of lanes, with what each has put there. They keep it until
  // the caller's next exchange or shuffle.
  const char* exchange(const void* mine, size_t bytes);
  void mma_float(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool bf16);

  Block* block_of_;
  int thread_;
  int parity_ = 0;  // slots are used by turns, so that one barrier a shuffle is enough
  std::vector<Copy> copies_;
  std::vector<size_t> groups_;  // copies_ before the end of each
};

// Where the calling thread's prefetches are noted, a line of 128 bytes each; null: nowhere. Each reads its line, so
// that a sanitizer sees one that is not there.
inline thread_local std::vector<const char*>* prefetched_lines = nullptr;

enum class Order { Ascending, Descending, Shuffled };

struct Grid {
  int64_t blocks = 1, blocks_y = 1;
  int threads = 32;
  size_t shared = 0;
};

// Runs `body` once per lane. Errors of the kernel throw std::logic_error.
void run_grid(const Grid& grid, Order order, const std::function<void(Lane&)>& body);

class Launch final : public cuda::Launch {
 public:
  // Computes the product in place of the own kernel, or says that it does not; empty: there is none (simt/library.h).
  std::function<bool(const cuda::Product&)> library;

  // Without limits the kernels have to fit the smallest GPUs.
  explicit Launch(Order order = Order::Ascending, cuda::LaunchLimits most = {.multiprocessors = 2}) : order_(order) {
    limits = most;
  }

  template <class K>
  void run(int64_t blocks, int threads, size_t shared, const K& kernel, int64_t blocks_y = 1) {
    if (blocks <= 0 || blocks_y <= 0) return;
    if (threads > K::kThreads) return fail("a block is larger than the kernel's own bound");
    if (shared > limits.shared) return fail("the kernel needs more shared memory than a block of this GPU has");
    run_grid({blocks, blocks_y, threads, shared}, order_, [&](Lane& lane) { kernel(lane); });
  }
  bool product(const cuda::Product& p) { return library && library(p); }
  CUstream_st* stream() const { return nullptr; }  // what is exchanged is so at once

 private:
  Order order_;
};

}  // namespace reprise::simt
