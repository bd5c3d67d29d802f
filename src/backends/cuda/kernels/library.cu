// Which products the vendor's library computes: those for which it has a way that gives the bits of our own kernel.
#include "backends/cuda/kernels/library.h"

#include <algorithm>
#include <vector>

#include "backends/cuda/blas.h"
#include "backends/cuda/device_launch.h"

namespace reprise::cuda {
namespace {

// Counts the bytes that differ.
struct Differing {
  static constexpr int kThreads = 256, kBlocks = 1;
  const uint8_t* a;
  const uint8_t* b;
  unsigned long long* count;
  int64_t n;

  template <class L>
  DEV void operator()(L& lane) const {
    unsigned long long mine = 0;
    for (int64_t i = static_cast<int64_t>(lane.block()) * kThreads + lane.thread(); i < n;
         i += static_cast<int64_t>(lane.blocks()) * kThreads)
      mine += a[i] != b[i];
    if (mine) atomicAdd(count, mine);
  }
};

// Numbers by which orders of sums can be told apart: a hash of the index, of like size (kSpread 0) or spread over many
// exponents.
template <class E, int kSpread>
struct Noise {
  static constexpr int kThreads = 256, kBlocks = 1;
  uint16_t* out;
  int64_t n;

  template <class L>
  DEV void operator()(L& lane) const {
    const int64_t i = static_cast<int64_t>(lane.block()) * kThreads + lane.thread();
    if (i >= n) return;
    uint64_t h = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15ull + kSpread;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
    h ^= h >> 31;
    float v = static_cast<float>(static_cast<int32_t>(h)) * 0x1p-31f;
    if (kSpread > 0) v = v * float_of((127u - static_cast<uint32_t>((h >> 40) % (kSpread + 1))) << 23);
    out[i] = E::store(v);
  }
};

// Memory and events of one choice.
struct Trial {
  void* y = nullptr;
  uint16_t* x = nullptr;
  unsigned long long* differing = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  bool ready = false;

  Trial(size_t y_bytes, size_t x_bytes) {
    ready = cudaMalloc(&y, y_bytes) == cudaSuccess && cudaMalloc(&x, x_bytes) == cudaSuccess &&
            cudaMalloc(&differing, sizeof *differing) == cudaSuccess && cudaEventCreate(&begin) == cudaSuccess &&
            cudaEventCreate(&end) == cudaSuccess;
  }
  ~Trial() {
    (void)cudaFree(y);
    (void)cudaFree(x);
    (void)cudaFree(differing);
    if (begin) (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
  }
};

void make_noise(const Product& p, int set, uint16_t* x, DeviceLaunch& launch) {
  // Any bytes are int8.
  const int64_t n = p.tokens * p.depth / (p.in == Number::I8 ? 2 : 1), blocks = blocks_for(n, 256);
  if (p.in == Number::BF16 || p.in == Number::I8)
    set == 0 ? launch.run(blocks, 256, 0, Noise<BF16, 0>{x, n}) : launch.run(blocks, 256, 0, Noise<BF16, 12>{x, n});
  else
    set == 0 ? launch.run(blocks, 256, 0, Noise<F16, 0>{x, n}) : launch.run(blocks, 256, 0, Noise<F16, 6>{x, n});
}

// Whether the way gives our own kernel's bits: of the operands at hand (set -1) or of noise in the place of x.
bool gives_our_bits(Blas& blas, const Blas::Way& way, Product p, int set, const Trial& trial, size_t bytes,
                    cudaStream_t stream) {
  DeviceLaunch launch(stream, nullptr);
  if (set >= 0) {
    make_noise(p, set, trial.x, launch);
    p.x = trial.x;
  }
  own_product(p, trial.y, stream);
  unsigned long long differing = 1;
  if (cudaMemsetAsync(p.y, 0xff, bytes, stream) != cudaSuccess || !blas.run(way, p, stream) ||
      cudaMemsetAsync(trial.differing, 0, sizeof differing, stream) != cudaSuccess)
    return false;
  launch.run(256, Differing::kThreads, 0,
             Differing{static_cast<const uint8_t*>(p.y), static_cast<const uint8_t*>(trial.y), trial.differing,
                       static_cast<int64_t>(bytes)});
  return cudaMemcpyAsync(&differing, trial.differing, sizeof differing, cudaMemcpyDeviceToHost, stream) ==
             cudaSuccess &&
         cudaStreamSynchronize(stream) == cudaSuccess && differing == 0;
}

// Milliseconds of two runs behind each other, or a negative number.
template <class Run>
float time_of(const Trial& trial, cudaStream_t stream, const Run& run) {
  (void)cudaEventRecord(trial.begin, stream);
  const bool ran = run() && run();
  (void)cudaEventRecord(trial.end, stream);
  float ms = 0;
  const bool timed = ran && cudaStreamSynchronize(stream) == cudaSuccess &&
                     cudaEventElapsedTime(&ms, trial.begin, trial.end) == cudaSuccess;
  return timed ? ms : -1;
}

// Keeps the fastest way that gives our own kernel's bits on three sets of numbers; none where our own is as fast.
void choose_way(Blas& blas, const Product& p, cudaStream_t stream) {
  const size_t bytes =
      static_cast<size_t>(p.tokens * p.columns) * (p.out == Number::F32 || p.out == Number::I32 ? 4 : 2);
  Trial trial(bytes, static_cast<size_t>(p.tokens * p.depth) * 2);
  std::shared_ptr<Blas::Way> best;
  float best_ms = trial.ready ? time_of(trial, stream, [&] { return own_product(p, trial.y, stream), true; }) : -1;
  if (trial.ready && best_ms >= 0)
    for (const auto& way : blas.ways(p)) {
      bool equal = true;
      for (int set = -1; set < 2 && equal; ++set) equal = gives_our_bits(blas, *way, p, set, trial, bytes, stream);
      if (!equal) continue;
      const float ms = time_of(trial, stream, [&] { return blas.run(*way, p, stream); });
      if (ms >= 0 && ms < best_ms) best = way, best_ms = ms;
    }
  (void)cudaGetLastError();
  blas.choose(p, std::move(best));
}

// Sums so short, or so few, that another order would seldom show could pass for ours; and what is no multiple of
// sixteen numbers the library computes in other ways. These stay with our own kernel.
bool worth_asking(const Product& p) {
  return p.depth >= 256 && p.depth % 16 == 0 && p.columns % 16 == 0 && p.tokens * p.columns >= 1 << 14;
}

}  // namespace

bool library_product(Blas* blas, const Product& p, cudaStream_t stream) {
  if (!worth_asking(p)) return false;
  const Blas::Choice* choice = blas->chosen(p);
  if (!choice) {
    // Nothing can be tried while launches are recorded; our own kernel gives the same bits.
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &capturing) != cudaSuccess || capturing != cudaStreamCaptureStatusNone)
      return false;
    choose_way(*blas, p, stream);
    choice = blas->chosen(p);
  }
  return choice->way && blas->run(*choice->way, p, stream);
}

}  // namespace reprise::cuda
