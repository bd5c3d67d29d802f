#include "backends/cuda/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "backends/cuda/product_choices.h"

namespace reprise::cuda {

// clang-format off
#define REPRISE_LT_FUNCTIONS(X) \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
  X(cublasLtMatrixLayoutDestroy) X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoConfigGetAttribute) \
  X(cublasLtMatmulAlgoCheck)
// clang-format on

struct Blas::Library {
  void* handle = nullptr;
  cublasLtHandle_t lt = nullptr;
#define REPRISE_LT_MEMBER(name) decltype(&::name) name = nullptr;
  REPRISE_LT_FUNCTIONS(REPRISE_LT_MEMBER)
#undef REPRISE_LT_MEMBER

  ~Library() {
    if (lt) (void)cublasLtDestroy(lt);
    // The library is not closed: its own threads and the driver may hold on to it.
  }

  template <typename T>
  std::optional<T> told(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t what) const {
    T value = 0;
    size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&algo, what, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS)
      return std::nullopt;
    return value;
  }
  // It splits no sum and needs no workspace.
  bool usable(const cublasLtMatmulHeuristicResult_t& r) const {
    const auto splits = told<int32_t>(r.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    return r.state == CUBLAS_STATUS_SUCCESS && splits && *splits <= 1 && r.workspaceSize == 0;
  }
  std::string words(const cublasLtMatmulAlgo_t& algo) const {
    const auto id = told<int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID);
    const auto tile = told<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
    const auto stages = told<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID);
    return fmt::format("algorithm {}, tile {}, stages {}", id.value_or(-1), tile.value_or(0), stages.value_or(0));
  }
};

// What the library is told of products of these sizes.
struct Blas::Layouts {
  const Library& library;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;

  explicit Layouts(const Library& l) : library(l) {}
  Layouts(const Layouts&) = delete;
  ~Layouts() {
    if (desc) (void)library.cublasLtMatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t layout : {weight, x, y})
      if (layout) (void)library.cublasLtMatrixLayoutDestroy(layout);
  }
};

namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
                                  "/usr/local/cuda/targets/x86_64-linux/lib/libcublasLt.so.13"};

cudaDataType_t type_of(Number n) {
  switch (n) {
    case Number::F32: return CUDA_R_32F;
    case Number::BF16: return CUDA_R_16BF;
    case Number::I8: return CUDA_R_8I;
    case Number::I32: return CUDA_R_32I;
    case Number::F16: break;
  }
  return CUDA_R_16F;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(Algorithm));
cublasLtMatmulAlgo_t native(const Algorithm& a) {
  cublasLtMatmulAlgo_t out;
  std::memcpy(&out, a.data(), sizeof out);
  return out;
}

}  // namespace

Blas::Blas(std::shared_ptr<Library> library, std::unique_ptr<ProductChoices> choices)
    : library_(std::move(library)), choices_(std::move(choices)) {}
Blas::~Blas() = default;

std::unique_ptr<Blas> Blas::open(const std::string& isa, int multiprocessors, std::vector<std::string>& notes) {
  auto library = std::make_shared<Library>();
  for (const char* name : kNames)
    if ((library->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL))) break;
  if (!library->handle) {
    notes.push_back("libcublasLt.so.13 was not found: products of many tokens run on Reprise's own kernel, slower");
    return nullptr;
  }
#define REPRISE_LT_FIND(name)                                                                        \
  if (!(library->name = reinterpret_cast<decltype(library->name)>(dlsym(library->handle, #name)))) { \
    notes.push_back("libcublasLt.so.13 has no " #name ", so it is not used");                        \
    return nullptr;                                                                                  \
  }
  REPRISE_LT_FUNCTIONS(REPRISE_LT_FIND)
#undef REPRISE_LT_FIND
  if (library->cublasLtCreate(&library->lt) != CUBLAS_STATUS_SUCCESS) {
    library->lt = nullptr;
    notes.push_back("cublasLtCreate failed, so cuBLASLt is not used");
    return nullptr;
  }
  const auto version = static_cast<int64_t>(library->cublasLtGetVersion());
  const std::string name = fmt::format("cuBLASLt {}", version);
  notes.push_back(
      fmt::format("{}: products of more than 16 tokens, where it gives the bits of Reprise's own kernel", name));
  auto choices =
      std::make_unique<ProductChoices>(ProductWaysKey{version, isa, multiprocessors, kOwnProductKernels}, name,
                                       [library](const Algorithm& a) { return library->words(native(a)); });
  return std::unique_ptr<Blas>(new Blas(std::move(library), std::move(choices)));
}

// Row-major y = x weight^T is the column-major product of weight transposed, [columns, depth], and x, [depth, tokens].
const Blas::Layouts* Blas::layouts(const Product& p) {
  const Key key{p.in, p.out, p.tokens, p.depth, p.columns};
  if (const auto known = layouts_.find(key); known != layouts_.end()) return known->second.get();
  const Library& lt = *library_;
  const bool whole = p.in == Number::I8;
  const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  const auto depth = static_cast<uint64_t>(p.depth), columns = static_cast<uint64_t>(p.columns);
  auto of = std::make_unique<Layouts>(lt);
  const bool made =
      lt.cublasLtMatmulDescCreate(&of->desc, whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                  whole ? CUDA_R_32I : CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatmulDescSetAttribute(of->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
          CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatmulDescSetAttribute(of->desc, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain) ==
          CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatrixLayoutCreate(&of->weight, type_of(p.in), depth, columns, p.depth) == CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatrixLayoutCreate(&of->x, type_of(p.in), depth, static_cast<uint64_t>(p.tokens), p.depth) ==
          CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatrixLayoutCreate(&of->y, type_of(p.out), columns, static_cast<uint64_t>(p.tokens), p.columns) ==
          CUBLAS_STATUS_SUCCESS;
  return made ? layouts_.emplace(key, std::move(of)).first->second.get() : nullptr;
}

std::vector<Algorithm> Blas::proposals(const Product& p) {
  const Library& lt = *library_;
  std::vector<Algorithm> out;
  const Layouts* of = layouts(p);
  cublasLtMatmulPreference_t preference = nullptr;
  if (!of || lt.cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return out;
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
  const size_t no_workspace = 0;
  (void)lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                sizeof schemes);
  (void)lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &no_workspace,
                                                sizeof no_workspace);
  constexpr int kAsked = 8;
  cublasLtMatmulHeuristicResult_t found[kAsked];
  int count = 0;
  if (lt.cublasLtMatmulAlgoGetHeuristic(lt.lt, of->desc, of->weight, of->x, of->y, of->y, preference, kAsked, found,
                                        &count) != CUBLAS_STATUS_SUCCESS)
    count = 0;
  (void)lt.cublasLtMatmulPreferenceDestroy(preference);
  for (int i = 0; i < count; ++i) {
    if (!lt.usable(found[i])) continue;
    std::memcpy(out.emplace_back().data(), &found[i].algo, sizeof found[i].algo);
  }
  return out;
}

bool Blas::takes(const Product& p, const Algorithm& algorithm) {
  const Library& lt = *library_;
  const Layouts* of = layouts(p);
  const cublasLtMatmulAlgo_t algo = native(algorithm);
  cublasLtMatmulHeuristicResult_t result{};
  if (!of || lt.cublasLtMatmulAlgoCheck(lt.lt, of->desc, of->weight, of->x, of->y, of->y, &algo, &result) !=
                 CUBLAS_STATUS_SUCCESS)
    return false;
  result.algo = algo;
  return lt.usable(result);
}

bool Blas::run(const Product& p, const Algorithm& algorithm, CUstream_st* stream) {
  const float one = 1, zero = 0;
  const int32_t whole_one = 1, whole_zero = 0;
  const bool whole = p.in == Number::I8;
  const void* alpha = whole ? static_cast<const void*>(&whole_one) : &one;
  const void* beta = whole ? static_cast<const void*>(&whole_zero) : &zero;
  const Layouts* of = layouts(p);
  const cublasLtMatmulAlgo_t algo = native(algorithm);
  return of && library_->cublasLtMatmul(library_->lt, of->desc, alpha, p.weight, of->weight, p.x, of->x, beta, p.y,
                                        of->y, p.y, of->y, &algo, nullptr, 0, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace reprise::cuda
