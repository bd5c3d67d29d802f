// cuda_probes: what a GPU's tensor cores and libraries do with the order of sums. The CUDA backend's design rests on
// the answers (docs/cuda.md has them, with the machine they were taken on). Prints one JSON object; needs a GPU of
// sm_80.
//
//   P1  does mma.sync.m16n8k16 give the bits of wgmma.m64n8k16 over a chain of K?          (sm_90a only)
//   P2  are the bits free of the side an operand is on, of a row's place in the tile, and of zeros beside it?
//   P3  which algorithms of cuBLASLt give the bits of that chain, by M, N and K?
//   C   what the machine can do: copy, launch, graph node, programmatic graph node.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#define CHECK_CUDA(call)                                                                         \
  do {                                                                                           \
    const cudaError_t e = (call);                                                                \
    if (e != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e)); \
      std::exit(1);                                                                              \
    }                                                                                            \
  } while (0)

namespace {

using bf16 = __nv_bfloat16;

__device__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ uint32_t pair_at(const bf16* p) { return *reinterpret_cast<const uint32_t*>(p); }

// out[i, j] = sum over k of left[i, k] * right[j, k], one chain of 16-wide blocks from zero. A warp makes 16 x 8. Rows
// beyond the end are read as zeros. `swapped` stores the transposed result.
__global__ void chain(const bf16* left, const bf16* right, float* out, int rows, int columns, int depth, bool swapped) {
  const int lane = threadIdx.x & 31, group = lane >> 2, quad = lane & 3;
  const int row0 = blockIdx.x * 16, column0 = blockIdx.y * 8;
  float d[4] = {0, 0, 0, 0};
  for (int k = 0; k < depth; k += 16) {
    uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    const int r0 = row0 + group, r1 = r0 + 8, c = column0 + group;
    if (r0 < rows) {
      a[0] = pair_at(left + static_cast<size_t>(r0) * depth + k + quad * 2);
      a[2] = pair_at(left + static_cast<size_t>(r0) * depth + k + 8 + quad * 2);
    }
    if (r1 < rows) {
      a[1] = pair_at(left + static_cast<size_t>(r1) * depth + k + quad * 2);
      a[3] = pair_at(left + static_cast<size_t>(r1) * depth + k + 8 + quad * 2);
    }
    if (c < columns) {
      b[0] = pair_at(right + static_cast<size_t>(c) * depth + k + quad * 2);
      b[1] = pair_at(right + static_cast<size_t>(c) * depth + k + 8 + quad * 2);
    }
    mma_16816(d, a, b);
  }
  for (int i = 0; i < 4; ++i) {
    const int r = row0 + group + (i >= 2 ? 8 : 0), c = column0 + quad * 2 + (i & 1);
    if (r < rows && c < columns)
      out[swapped ? static_cast<size_t>(c) * rows + r : static_cast<size_t>(r) * columns + c] = d[i];
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define HAS_WGMMA 1
#endif

// The same by wgmma.m64n8k16: 64 rows of `left`, 8 of `right`; operands in shared memory as core matrices of 8 rows by
// 16 bytes, no swizzle.
__global__ void chain_wgmma(const bf16* left, const bf16* right, float* out, int columns, int depth) {
#ifdef HAS_WGMMA
  __shared__ alignas(128) bf16 a[64 * 16];
  __shared__ alignas(128) bf16 b[8 * 16];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = lane >> 2, quad = lane & 3;
  const int row0 = blockIdx.x * 64, column0 = blockIdx.y * 8;
  float d[4] = {0, 0, 0, 0};
  auto descriptor = [](const void* p) {
    const uint64_t address = __cvta_generic_to_shared(p);
    return ((address >> 4) & 0x3fff) | (uint64_t{128 >> 4} << 16) | (uint64_t{256 >> 4} << 32);
  };
  for (int k = 0; k < depth; k += 16) {
    for (int i = threadIdx.x; i < 64 * 16; i += blockDim.x) {
      const int r = i / 16, c = i % 16;
      a[((r / 8) * 2 + c / 8) * 64 + (r % 8) * 8 + c % 8] = left[static_cast<size_t>(row0 + r) * depth + k + c];
    }
    for (int i = threadIdx.x; i < 8 * 16; i += blockDim.x) {
      const int r = i / 16, c = i % 16;
      b[(c / 8) * 64 + r * 8 + c % 8] = right[static_cast<size_t>(column0 + r) * depth + k + c];
    }
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(descriptor(a)), "l"(descriptor(b)));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" ::: "memory");
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    const int r = row0 + warp * 16 + group + (i >= 2 ? 8 : 0), c = column0 + quad * 2 + (i & 1);
    out[static_cast<size_t>(r) * columns + c] = d[i];
  }
#endif
}

__global__ void nothing(int* p) {
  if (p) *p = 1;
}
__global__ void nothing_programmatic(int* p) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
  if (p) *p = 1;
}

template <class T>
struct Buffer {
  T* p = nullptr;
  size_t n;
  explicit Buffer(size_t count) : n(count) { CHECK_CUDA(cudaMalloc(&p, count * sizeof(T))); }
  Buffer(const Buffer&) = delete;
  ~Buffer() { (void)cudaFree(p); }
  void set(const std::vector<T>& v) { CHECK_CUDA(cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice)); }
  std::vector<T> get() const {
    std::vector<T> v(n);
    CHECK_CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
  }
};

enum class Data { Normal, Wide, Denormal };
constexpr const char* kDataNames[] = {"normal", "wide exponents", "denormal tails"};

std::vector<bf16> random(size_t n, Data kind, uint32_t seed) {
  std::mt19937 g(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-20, 20);
  std::vector<bf16> v(n);
  for (bf16& x : v) {
    float f = normal(g);
    if (kind == Data::Wide) f = std::ldexp(f, exponent(g));
    if (kind == Data::Denormal && g() % 4 == 0) f = std::ldexp(f, -66);
    x = __float2bfloat16(f);
  }
  return v;
}

size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += std::memcmp(&a[i], &b[i], 4) != 0;
  return n;
}

std::vector<float> run_chain(const Buffer<bf16>& left, const Buffer<bf16>& right, int rows, int columns, int depth,
                             bool swapped = false) {
  Buffer<float> out(static_cast<size_t>(rows) * columns);
  chain<<<dim3((rows + 15) / 16, (columns + 7) / 8), 32>>>(left.p, right.p, out.p, rows, columns, depth, swapped);
  CHECK_CUDA(cudaDeviceSynchronize());
  return out.get();
}

void p1_p2() {
  constexpr int M = 64, N = 256;
  std::printf("\"P1_P2\": [");
  bool first = true;
  for (Data kind : {Data::Normal, Data::Wide, Data::Denormal})
    for (int K : {16, 64, 1024, 4096, 12288}) {
      Buffer<bf16> x(static_cast<size_t>(M) * K), w(static_cast<size_t>(N) * K);
      x.set(random(x.n, kind, 1));
      w.set(random(w.n, kind, 2));
      const std::vector<float> as_rows = run_chain(x, w, M, N, K);           // tokens are the 16-row operand
      const std::vector<float> as_columns = run_chain(w, x, N, M, K, true);  // weights are the 16-row operand
      Buffer<float> out(static_cast<size_t>(M) * N);
      CHECK_CUDA(cudaMemset(out.p, 0xff, out.n * 4));
      chain_wgmma<<<dim3(M / 64, N / 8), 128>>>(x.p, w.p, out.p, N, K);
      CHECK_CUDA(cudaDeviceSynchronize());
      // A row's place: rows 5.. of x alone, and the first row with nothing beside it.
      Buffer<bf16> shifted(static_cast<size_t>(M - 5) * K);
      CHECK_CUDA(cudaMemcpy(shifted.p, x.p + static_cast<size_t>(5) * K, shifted.n * 2, cudaMemcpyDeviceToDevice));
      const std::vector<float> moved = run_chain(shifted, w, M - 5, N, K);
      const std::vector<float> alone = run_chain(x, w, 1, N, K);
      const size_t place = differing(moved, std::vector<float>(as_rows.begin() + 5 * N, as_rows.end()));
      const size_t zeros = differing(alone, as_rows);
      std::printf(
          "%s\n  {\"data\": \"%s\", \"k\": %d, \"outputs\": %d, \"wgmma_differs\": %zu, \"sides_differ\": %zu, "
          "\"place_differs\": %zu, \"alone_differs\": %zu}",
          first ? "" : ",", kDataNames[static_cast<int>(kind)], K, M * N, differing(as_rows, out.get()),
          differing(as_rows, as_columns), place, zeros);
      first = false;
    }
  std::printf("\n],\n");
}

// The few functions of cuBLASLt, by dlopen as the backend does it.
struct Lt {
  void* library = nullptr;
// clang-format off
#define LT_FUNCTIONS(X) \
  X(cublasLtCreate) X(cublasLtGetVersion) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatmulPreferenceCreate) \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoConfigGetAttribute)
  // clang-format on
#define LT_MEMBER(name) decltype(&::name) name = nullptr;
  LT_FUNCTIONS(LT_MEMBER)
  bool open() {
    for (const char* path : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
                             "/usr/local/cuda/targets/x86_64-linux/lib/libcublasLt.so.13"})
      if ((library = dlopen(path, RTLD_NOW))) break;
    if (!library) return false;
#define LT_FIND(name) \
  if (!(name = reinterpret_cast<decltype(name)>(dlsym(library, #name)))) return false;
    LT_FUNCTIONS(LT_FIND)
    return true;
  }
};

double median_us(const std::function<void(int)>& run, int repeats = 20) {
  cudaEvent_t a, b;
  CHECK_CUDA(cudaEventCreate(&a));
  CHECK_CUDA(cudaEventCreate(&b));
  std::vector<float> times;
  for (int i = -3; i < repeats; ++i) {
    CHECK_CUDA(cudaEventRecord(a));
    run(i + 3);
    CHECK_CUDA(cudaEventRecord(b));
    CHECK_CUDA(cudaEventSynchronize(b));
    float ms = 0;
    CHECK_CUDA(cudaEventElapsedTime(&ms, a, b));
    if (i >= 0) times.push_back(ms * 1000);
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void p3() {
  Lt lt;
  if (!lt.open()) {
    std::printf("\"P3\": \"libcublasLt.so.13 was not found\",\n");
    return;
  }
  cublasLtHandle_t handle;
  lt.cublasLtCreate(&handle);
  constexpr size_t kWorkspace = 32u << 20;
  Buffer<char> workspace(kWorkspace);
  std::printf("\"cublasLt\": %zu,\n\"P3\": [", lt.cublasLtGetVersion());
  bool first = true;
  struct Case {
    int n, k;
  };
  for (const Case c :
       {Case{4096, 4096}, Case{6144, 4096}, Case{24576, 4096}, Case{4096, 12288}, Case{3072, 1024}, Case{576, 576}})
    for (int m : {16, 64, 128, 200, 256, 1024, 2048}) {
      Buffer<bf16> x(static_cast<size_t>(m) * c.k);
      x.set(random(x.n, Data::Normal, 3));
      const int copies =
          static_cast<int>(std::max<size_t>(1, (size_t{200} << 20) / (static_cast<size_t>(c.n) * c.k * 2)));
      Buffer<bf16> w(static_cast<size_t>(c.n) * c.k * copies);
      const std::vector<bf16> one = random(static_cast<size_t>(c.n) * c.k, Data::Normal, 4);
      for (int i = 0; i < copies; ++i)
        CHECK_CUDA(
            cudaMemcpy(w.p + static_cast<size_t>(i) * c.n * c.k, one.data(), one.size() * 2, cudaMemcpyHostToDevice));
      Buffer<float> want(static_cast<size_t>(m) * c.n), got(static_cast<size_t>(m) * c.n);
      chain<<<dim3((c.n + 15) / 16, (m + 7) / 8), 32>>>(w.p, x.p, want.p, c.n, m, c.k, true);
      CHECK_CUDA(cudaDeviceSynchronize());
      const std::vector<float> reference = want.get();

      cublasLtMatmulDesc_t desc;
      lt.cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
      const cublasOperation_t t = CUBLAS_OP_T, none = CUBLAS_OP_N;
      lt.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t);
      lt.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &none, sizeof none);
      cublasLtMatrixLayout_t la, lb, ld;
      lt.cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, c.k, c.n, c.k);
      lt.cublasLtMatrixLayoutCreate(&lb, CUDA_R_16BF, c.k, m, c.k);
      lt.cublasLtMatrixLayoutCreate(&ld, CUDA_R_32F, c.n, m, c.n);
      cublasLtMatmulPreference_t preference;
      lt.cublasLtMatmulPreferenceCreate(&preference);
      lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                              sizeof kWorkspace);
      cublasLtMatmulHeuristicResult_t found[64];
      int count = 0;
      lt.cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 64, found, &count);
      int equal = 0, unsplit = 0;
      double best = 1e30, best_equal = 1e30;
      std::string config, other;
      for (int i = 0; i < count; ++i) {
        const float alpha = 1, beta = 0;
        CHECK_CUDA(cudaMemset(got.p, 0xff, got.n * 4));
        auto product = [&](int copy) {
          return lt.cublasLtMatmul(handle, desc, &alpha, w.p + static_cast<size_t>(copy % copies) * c.n * c.k, la, x.p,
                                   lb, &beta, got.p, ld, got.p, ld, &found[i].algo, workspace.p, kWorkspace, nullptr);
        };
        if (product(0) != CUBLAS_STATUS_SUCCESS) continue;
        CHECK_CUDA(cudaDeviceSynchronize());
        const size_t differ = differing(reference, got.get());
        int split = 0, tile = 0, stages = 0, id = 0, scheme = 0;
        size_t written = 0;
        lt.cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, 4, &written);
        lt.cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, 4, &written);
        lt.cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, &stages, 4, &written);
        lt.cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_ID, &id, 4, &written);
        lt.cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, 4,
                                                &written);
        unsplit += split <= 1;
        const double us = median_us([&](int r) { product(r); }, 10);
        char text[160];
        std::snprintf(text, sizeof text, "id %d tile %d stages %d split %d scheme %d: %zu differ, %.1f us", id, tile,
                      stages, split, scheme, differ, us);
        best = std::min(best, us);
        if (differ == 0) {
          ++equal;
          if (us < best_equal) best_equal = us, config = text;
        } else if (split <= 1 && other.size() < 300) {
          other += std::string(other.empty() ? "" : "; ") + text;
        }
      }
      std::printf(
          "%s\n  {\"n\": %d, \"k\": %d, \"m\": %d, \"candidates\": %d, \"unsplit\": %d, \"equal\": %d, \"best_us\": "
          "%.1f, "
          "\"best_equal_us\": %.1f, \"tflops_equal\": %.0f, \"config\": \"%s\", \"unsplit_but_other\": \"%s\"}",
          first ? "" : ",", c.n, c.k, m, count, unsplit, equal, best, equal ? best_equal : 0,
          equal ? 2.0 * m * c.n * c.k / best_equal * 1e-6 : 0, config.c_str(), other.c_str());
      first = false;
      std::fflush(stdout);
    }
  std::printf("\n],\n");
}

void machine() {
  cudaDeviceProp p{};
  CHECK_CUDA(cudaGetDeviceProperties(&p, 0));
  std::printf("\"device\": \"%s\", \"sm\": %d, \"sms\": %d, \"l2_mib\": %d,\n", p.name, p.major * 10 + p.minor,
              p.multiProcessorCount, p.l2CacheSize >> 20);
  constexpr size_t kBytes = size_t{2} << 30;
  Buffer<char> a(kBytes), b(kBytes);
  const double copy = median_us([&](int) { CHECK_CUDA(cudaMemcpyAsync(b.p, a.p, kBytes, cudaMemcpyDeviceToDevice)); });
  cudaStream_t s;
  CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  auto chained = [&](bool programmatic, int nodes) {
    CHECK_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; ++i) {
      cudaLaunchConfig_t config{};
      config.gridDim = 132;
      config.blockDim = 128;
      config.stream = s;
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
      config.attrs = &attribute;
      config.numAttrs = programmatic ? 1 : 0;
      CHECK_CUDA(
          cudaLaunchKernelEx(&config, programmatic ? nothing_programmatic : nothing, static_cast<int*>(nullptr)));
    }
    cudaGraph_t graph;
    CHECK_CUDA(cudaStreamEndCapture(s, &graph));
    cudaGraphExec_t exec;
    // cudaGraphInstantiateFlagUpload is an invalid argument here: it needs a stream to upload on.
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphUpload(exec, s));
    cudaEvent_t e0, e1;
    CHECK_CUDA(cudaEventCreate(&e0));
    CHECK_CUDA(cudaEventCreate(&e1));
    float best = 1e30f;
    for (int i = 0; i < 20; ++i) {
      CHECK_CUDA(cudaEventRecord(e0, s));
      CHECK_CUDA(cudaGraphLaunch(exec, s));
      CHECK_CUDA(cudaEventRecord(e1, s));
      CHECK_CUDA(cudaEventSynchronize(e1));
      float ms = 0;
      CHECK_CUDA(cudaEventElapsedTime(&ms, e0, e1));
      best = std::min(best, ms);
    }
    return best * 1000.0 / nodes;
  };
  std::printf("\"copy_tb_s\": %.2f, \"graph_node_us\": %.3f, \"graph_node_programmatic_us\": %.3f,\n",
              2.0 * kBytes / copy * 1e-6, chained(false, 512), chained(true, 512));
}

}  // namespace

int main() {
  std::printf("{");
  machine();
  p1_p2();
  p3();
  std::printf("\"end\": true}\n");
}
