#include "backends/cuda/blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/log.h"

namespace reprise::cuda {

// clang-format off
#define REPRISE_LT_FUNCTIONS(X) \
  X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) \
  X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) \
  X(cublasLtMatrixLayoutDestroy) X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
  X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoConfigGetAttribute)
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
};

struct Blas::Way {
  const Library& library;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulAlgo_t algo{};

  explicit Way(const Library& l) : library(l) {}
  Way(const Way&) = delete;
  ~Way() {
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

}  // namespace

Blas::Blas(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Blas::~Blas() = default;

std::unique_ptr<Blas> Blas::open(std::vector<std::string>& notes) {
  auto library = std::make_unique<Library>();
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
  notes.push_back(
      fmt::format("cuBLASLt {}: products of more than 16 tokens, where it gives the bits of Reprise's own kernel",
                  library->cublasLtGetVersion()));
  return std::unique_ptr<Blas>(new Blas(std::move(library)));
}

const Blas::Choice* Blas::chosen(const Product& p) const {
  auto it = choices_.find(key(p));
  return it == choices_.end() ? nullptr : &it->second;
}

void Blas::choose(const Product& p, std::shared_ptr<Way> way) {
  constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "int8", "int32"};
  log::debug("products of {} {} x {} with {} tokens: {}", kNames[static_cast<size_t>(p.in)], p.columns, p.depth,
             p.tokens, way ? "cuBLASLt" : "Reprise's own kernel");
  choices_[key(p)] = {std::move(way)};
}

// Row-major y = x weight^T is the column-major product of weight transposed, [columns, depth], and x, [depth, tokens].
std::shared_ptr<Blas::Way> Blas::make_way(const Product& p) const {
  const Library& lt = *library_;
  const bool whole = p.in == Number::I8;
  const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  const auto depth = static_cast<uint64_t>(p.depth), columns = static_cast<uint64_t>(p.columns);
  auto way = std::make_shared<Way>(lt);
  const bool made =
      lt.cublasLtMatmulDescCreate(&way->desc, whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                                  whole ? CUDA_R_32I : CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatmulDescSetAttribute(way->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed) ==
          CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatmulDescSetAttribute(way->desc, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain) ==
          CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatrixLayoutCreate(&way->weight, type_of(p.in), depth, columns, p.depth) == CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatrixLayoutCreate(&way->x, type_of(p.in), depth, static_cast<uint64_t>(p.tokens), p.depth) ==
          CUBLAS_STATUS_SUCCESS &&
      lt.cublasLtMatrixLayoutCreate(&way->y, type_of(p.out), columns, static_cast<uint64_t>(p.tokens), p.columns) ==
          CUBLAS_STATUS_SUCCESS;
  return made ? way : nullptr;
}

std::shared_ptr<Blas::Way> Blas::same_way(const Way& way, const Product& p) {
  auto other = make_way(p);
  if (other) other->algo = way.algo;
  return other;
}

Blas::Proof& Blas::proof(const Product& p, const Way& way) {
  return proofs_[{p.in, p.out, p.depth, p.columns,
                  std::string(reinterpret_cast<const char*>(&way.algo), sizeof way.algo)}];
}

std::vector<std::shared_ptr<Blas::Way>> Blas::ways(const Product& p) {
  const Library& lt = *library_;
  std::vector<std::shared_ptr<Way>> out;
  const auto asked = make_way(p);
  cublasLtMatmulPreference_t preference = nullptr;
  if (!asked || lt.cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS) return out;
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
  const size_t no_workspace = 0;
  (void)lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                sizeof schemes);
  (void)lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &no_workspace,
                                                sizeof no_workspace);
  constexpr int kAsked = 8;
  cublasLtMatmulHeuristicResult_t found[kAsked];
  int count = 0;
  if (lt.cublasLtMatmulAlgoGetHeuristic(lt.lt, asked->desc, asked->weight, asked->x, asked->y, asked->y, preference,
                                        kAsked, found, &count) != CUBLAS_STATUS_SUCCESS)
    count = 0;
  (void)lt.cublasLtMatmulPreferenceDestroy(preference);
  for (int i = 0; i < count; ++i) {
    int32_t splits = 0;
    size_t written = 0;
    const bool told = lt.cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                                              sizeof splits, &written) == CUBLAS_STATUS_SUCCESS;
    if (found[i].state != CUBLAS_STATUS_SUCCESS || !told || splits > 1 || found[i].workspaceSize > 0) continue;
    if (auto way = make_way(p)) {
      way->algo = found[i].algo;
      out.push_back(std::move(way));
    }
  }
  return out;
}

bool Blas::run(const Way& way, const Product& p, CUstream_st* stream) {
  const float one = 1, zero = 0;
  const int32_t whole_one = 1, whole_zero = 0;
  const bool whole = p.in == Number::I8;
  const void* alpha = whole ? static_cast<const void*>(&whole_one) : &one;
  const void* beta = whole ? static_cast<const void*>(&whole_zero) : &zero;
  return library_->cublasLtMatmul(library_->lt, way.desc, alpha, p.weight, way.weight, p.x, way.x, beta, p.y, way.y,
                                  p.y, way.y, &way.algo, nullptr, 0, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace reprise::cuda
