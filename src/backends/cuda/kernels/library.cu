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

// Up to so many tokens the library's ways are timed beside our own kernel; with more, its favourite is taken.
constexpr int64_t kTimedTokens = 128;
// A way is proved with so many tokens, or fewer where many columns would take more memory than this.
constexpr int64_t kProvedTokens = 256;
constexpr int64_t kProvedBytes = int64_t{64} << 20;
constexpr int kNoiseSets = 3;

enum class Equal { Yes, No, Unknown };  // unknown: the GPU or the library could not do it at the moment

// Memory, events and a stream of one choice.
struct Trial {
  void* mine = nullptr;
  void* theirs = nullptr;
  uint16_t* x = nullptr;
  unsigned long long* differing = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaStream_t stream = nullptr;
  bool ready = false;
  Product product;
  size_t bytes;

  explicit Trial(const Product& p) : product(p), bytes(0) {
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
  Trial(const Trial&) = delete;
  ~Trial() {
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

void make_noise(int set, const Trial& trial, DeviceLaunch& launch) {
  const Product& p = trial.product;
  // Any bytes are int8.
  const int64_t n = p.tokens * p.depth / (p.in == Number::I8 ? 2 : 1);
  p.in == Number::F16 ? make_noise<F16>(set, trial.x, n, launch) : make_noise<BF16>(set, trial.x, n, launch);
}

// Whether the way gives our own kernel's bits of the weights at hand and a set of noise.
Equal gives_our_bits(Blas& blas, const Blas::Way& way, int set, const Trial& trial) {
  const Product& p = trial.product;
  DeviceLaunch launch(trial.stream, nullptr);
  make_noise(set, trial, launch);
  own_product(p, trial.mine, trial.stream);
  unsigned long long differing = 1;
  if (cudaMemsetAsync(trial.theirs, 0xff, trial.bytes, trial.stream) != cudaSuccess ||
      !blas.run(way, p, trial.stream) ||
      cudaMemsetAsync(trial.differing, 0, sizeof differing, trial.stream) != cudaSuccess)
    return Equal::Unknown;
  launch.run(256, Differing::kThreads, 0,
             Differing{static_cast<const uint8_t*>(trial.theirs), static_cast<const uint8_t*>(trial.mine),
                       trial.differing, static_cast<int64_t>(trial.bytes)});
  if (cudaMemcpyAsync(&differing, trial.differing, sizeof differing, cudaMemcpyDeviceToHost, trial.stream) !=
          cudaSuccess ||
      cudaStreamSynchronize(trial.stream) != cudaSuccess)
    return Equal::Unknown;
  return differing == 0 ? Equal::Yes : Equal::No;
}

// Milliseconds of two runs behind each other and a first one, which may load kernels; or a negative number.
template <class Run>
float time_of(const Trial& trial, const Run& run) {
  if (!run()) return -1;
  (void)cudaEventRecord(trial.begin, trial.stream);
  const bool ran = run() && run();
  (void)cudaEventRecord(trial.end, trial.stream);
  float ms = 0;
  const bool timed = ran && cudaStreamSynchronize(trial.stream) == cudaSuccess &&
                     cudaEventElapsedTime(&ms, trial.begin, trial.end) == cudaSuccess;
  return timed ? ms : -1;
}

// Keeps a way that gives our own kernel's bits on three sets of numbers: the library's favourite, or with few tokens
// the fastest; none where our own is as fast. What is known of an algorithm and a shape of weights holds for any number
// of tokens, so the library's favourites are proved once. False: it could not be found out now.
bool choose_way(Blas& blas, const Product& p) {
  std::optional<Trial> trial;  // not made where all is known
  auto at_hand = [&]() -> const Trial& { return trial ? *trial : trial.emplace(p); };
  const bool timed = p.tokens <= kTimedTokens;
  Product now = p;  // as it is timed
  std::shared_ptr<Blas::Way> best;
  float best_ms = 0;
  if (timed) {
    if (!at_hand().ready) return false;
    DeviceLaunch launch(trial->stream, nullptr);
    make_noise(0, *trial, launch);  // times of zeros are not those of numbers
    now.x = trial->x;
    now.y = trial->theirs;
    best_ms = time_of(*trial, [&] { return own_product(now, trial->mine, trial->stream), true; });
    if (best_ms < 0) return false;
  }
  for (const auto& way : blas.ways(p)) {
    Blas::Proof& proof = blas.proof(p, *way);
    if (proof == Blas::Proof::None) {
      if (!at_hand().ready) return false;
      const auto proved = blas.same_way(*way, trial->product);
      Equal equal = proved ? Equal::Yes : Equal::Unknown;
      for (int set = 0; set < kNoiseSets && equal == Equal::Yes; ++set)
        equal = gives_our_bits(blas, *proved, set, *trial);
      if (equal == Equal::Unknown) continue;
      proof = equal == Equal::Yes ? Blas::Proof::Ours : Blas::Proof::Other;
    }
    if (proof != Blas::Proof::Ours) continue;
    if (!timed) {
      best = way;
      break;
    }
    const float ms = time_of(*trial, [&] { return blas.run(*way, now, trial->stream); });
    if (ms >= 0 && ms < best_ms) best = way, best_ms = ms;
  }
  blas.choose(p, std::move(best));
  return true;
}

// Sums so short, or so few, that another order would seldom show could pass for ours; and what is no multiple of
// sixteen numbers the library computes in other ways. These stay with our own kernel.
bool worth_asking(const Product& p) {
  return p.depth >= 256 && p.depth % 16 == 0 && p.columns % 16 == 0 && p.tokens * p.columns >= 1 << 14;
}

}  // namespace

bool library_product(Blas* blas, const Product& p, cudaStream_t stream) {
  if (!worth_asking(p)) return false;
  const Aside aside;  // also of the product itself: the library may have to load a kernel for it
  if (!blas->chosen(p)) {
    const bool done = choose_way(*blas, p);
    (void)cudaGetLastError();
    if (!done) return false;  // our own kernel gives the same bits, and the next such product asks again
  }
  const Blas::Choice* choice = blas->chosen(p);
  return choice->way && blas->run(*choice->way, p, stream);
}

}  // namespace reprise::cuda
