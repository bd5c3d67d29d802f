// Which products the vendor's library computes: those for which it has a way that gives the bits of our own kernel.
#include "backends/cuda/kernels/library.h"

#include <algorithm>
#include <optional>
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

// Work that is no part of what the thread records at the moment, if it records.
class Aside {
 public:
  Aside() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  Aside(const Aside&) = delete;
  ~Aside() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// An algorithm is proved with so many tokens, or fewer where many columns would take more memory than this.
constexpr int64_t kProvedTokens = 256;
constexpr int64_t kProvedBytes = int64_t{64} << 20;
constexpr int kNoiseSets = 3;

// Memory, events and a stream of one choice.
struct Bench {
  void* mine = nullptr;
  void* theirs = nullptr;
  uint16_t* x = nullptr;
  unsigned long long* differing = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaStream_t stream = nullptr;
  bool ready = false;
  Product product;
  size_t bytes;

  explicit Bench(const Product& p) : product(p), bytes(0) {
    const int64_t row = p.columns * (p.out == Number::F32 || p.out == Number::I32 ? 4 : 2);
    product.tokens = greater(smaller(kProvedTokens, kProvedBytes / row / 16 * 16), smaller(p.tokens, kTimedTokens));
    bytes = static_cast<size_t>(product.tokens * row);
    ready = cudaMalloc(&mine, bytes) == cudaSuccess && cudaMalloc(&theirs, bytes) == cudaSuccess &&
            cudaMalloc(&x, static_cast<size_t>(product.tokens * p.depth) * 2) == cudaSuccess &&
            cudaMalloc(&differing, sizeof *differing) == cudaSuccess && cudaEventCreate(&begin) == cudaSuccess &&
            cudaEventCreate(&end) == cudaSuccess &&
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
    product.x = x;
    product.y = theirs;
  }
  Bench(const Bench&) = delete;
  ~Bench() {
    if (stream) (void)cudaStreamDestroy(stream);
    for (void* p : {mine, theirs, static_cast<void*>(x), static_cast<void*>(differing)}) (void)cudaFree(p);
    if (begin) (void)cudaEventDestroy(begin);
    if (end) (void)cudaEventDestroy(end);
  }
};

template <class E>
void make_noise(int set, uint16_t* x, int64_t n, DeviceLaunch& launch) {
  constexpr int kWide = std::is_same_v<E, BF16> ? 12 : 6;  // exponents; f16 has fewer
  const int64_t blocks = blocks_for(n, 256);
  if (set == 0) launch.run(blocks, 256, 0, Noise<E, 0>{x, n});
  if (set == 1) launch.run(blocks, 256, 0, Noise<E, 3>{x, n});
  if (set == 2) launch.run(blocks, 256, 0, Noise<E, kWide>{x, n});
}

void make_noise(int set, const Bench& bench) {
  const Product& p = bench.product;
  DeviceLaunch launch(bench.stream, nullptr);
  // Any bytes are int8.
  const int64_t n = p.tokens * p.depth / (p.in == Number::I8 ? 2 : 1);
  p.in == Number::F16 ? make_noise<F16>(set, bench.x, n, launch) : make_noise<BF16>(set, bench.x, n, launch);
}

// The library and the GPU, for one product.
class DeviceTrials final : public ProductTrials {
 public:
  explicit DeviceTrials(Blas& blas) : blas_(blas) {}

  std::vector<Algorithm> proposals(const Product& p) override {
    asked_ = true;
    return blas_.proposals(p);
  }
  bool takes(const Product& p, const Algorithm& algorithm) override {
    asked_ = true;
    return blas_.takes(p, algorithm);
  }

  Bits compare(const Product& p, const Algorithm& algorithm) override {
    if (!bench(p).ready) return Bits::NotNow;
    Bits bits = Bits::Ours;
    for (int set = 0; set < kNoiseSets && bits == Bits::Ours; ++set) bits = compare(algorithm, set);
    return bits;
  }

  std::optional<float> own_us(const Product& p) override {
    const Bench& b = bench(p);
    if (!b.ready) return std::nullopt;
    const Product now = as_timed(p);
    return time_of([&] { return own_product(now, b.mine, b.stream), true; });
  }
  std::optional<float> us(const Product& p, const Algorithm& algorithm) override {
    const Bench& b = bench(p);
    if (!b.ready) return std::nullopt;
    const Product now = as_timed(p);
    return time_of([&] { return blas_.run(now, algorithm, b.stream); });
  }

  bool asked() const { return asked_; }

 private:
  const Bench& bench(const Product& p) {
    asked_ = true;
    return bench_ ? *bench_ : bench_.emplace(p);
  }

  // With the weights at hand and a set of noise.
  Bits compare(const Algorithm& algorithm, int set) {
    const Bench& b = *bench_;
    const Product& p = b.product;
    make_noise(set, b);
    own_product(p, b.mine, b.stream);
    unsigned long long differing = 1;
    if (cudaMemsetAsync(b.theirs, 0xff, b.bytes, b.stream) != cudaSuccess || !blas_.run(p, algorithm, b.stream) ||
        cudaMemsetAsync(b.differing, 0, sizeof differing, b.stream) != cudaSuccess)
      return Bits::Refused;
    DeviceLaunch launch(b.stream, nullptr);
    launch.run(256, Differing::kThreads, 0,
               Differing{static_cast<const uint8_t*>(b.theirs), static_cast<const uint8_t*>(b.mine), b.differing,
                         static_cast<int64_t>(b.bytes)});
    if (cudaMemcpyAsync(&differing, b.differing, sizeof differing, cudaMemcpyDeviceToHost, b.stream) != cudaSuccess ||
        cudaStreamSynchronize(b.stream) != cudaSuccess)
      return Bits::Refused;
    return differing == 0 ? Bits::Ours : Bits::Other;
  }

  // Times of zeros are not those of numbers.
  Product as_timed(const Product& p) {
    make_noise(0, *bench_);
    Product now = p;
    now.x = bench_->x;
    now.y = bench_->theirs;
    return now;
  }

  // Microseconds of one of two runs behind each other and a first one, which may load kernels.
  template <class Run>
  std::optional<float> time_of(const Run& run) {
    const Bench& b = *bench_;
    if (!run()) return std::nullopt;
    (void)cudaEventRecord(b.begin, b.stream);
    const bool ran = run() && run();
    (void)cudaEventRecord(b.end, b.stream);
    float ms = 0;
    const bool timed = ran && cudaStreamSynchronize(b.stream) == cudaSuccess &&
                       cudaEventElapsedTime(&ms, b.begin, b.end) == cudaSuccess;
    return timed ? std::optional<float>(ms * 500) : std::nullopt;
  }

  Blas& blas_;
  bool asked_ = false;
  std::optional<Bench> bench_;  // not made where all is known
};

}  // namespace

bool library_product(Blas* blas, const Product& p, cudaStream_t stream) {
  const Aside aside;  // also of the product itself: the library may have to load a kernel for it
  const Algorithm* algorithm = nullptr;
  {
    DeviceTrials trials(*blas);
    algorithm = choose(blas->choices(), p, trials);
    if (trials.asked()) (void)cudaGetLastError();  // what a trial could not do is no error of the launch
  }
  return algorithm && blas->run(p, *algorithm, stream);
}

}  // namespace reprise::cuda
