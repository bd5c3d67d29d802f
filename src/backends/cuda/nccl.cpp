#include "backends/cuda/nccl.h"

#include <dlfcn.h>

#include <vector>

namespace reprise::cuda {
namespace {

// The first with ncclCommInitRankConfig (NCCL's release notes). Graphs record its calls since 2.9.
constexpr int kOldest = 21400;

// NCCL_VERSION: up to 2.8 the major number counts thousands, later ten thousands.
std::string text_of(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int rest = version < 10000 ? version % 1000 : version % 10000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

}  // namespace

Result<std::shared_ptr<const Nccl>> Nccl::open(const std::string& path) {
  const std::vector<std::string> names =
      path.empty() ? std::vector<std::string>{"libnccl.so.2", "libnccl.so"} : std::vector<std::string>{path};
  // It is not closed: threads of its own and the driver may hold on to it.
  void* handle = nullptr;
  std::string why;
  for (const std::string& name : names) {
    if ((handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
    const char* words = dlerror();
    if (why.empty()) why = words ? words : "it cannot be opened";
  }
  if (!handle)
    return error(Code::Unsupported,
                 "several ranks on cuda need NCCL: {}; install it (libnccl2 of NVIDIA's apt repository, or "
                 "nvidia-nccl-cu12 or nvidia-nccl-cu13 of PyPI, as the driver's CUDA is) and name its folder in "
                 "LD_LIBRARY_PATH",
                 why);
  std::shared_ptr<Nccl> out(new Nccl);
  std::vector<std::string> absent;
#define REPRISE_NCCL_FIND(name, result, arguments) \
  out->name = reinterpret_cast<decltype(out->name)>(dlsym(handle, #name));
#define REPRISE_NCCL_NEED(name, result, arguments) \
  REPRISE_NCCL_FIND(name, result, arguments)       \
  if (!out->name) absent.emplace_back(#name);
  REPRISE_NCCL_FUNCTIONS(REPRISE_NCCL_NEED, REPRISE_NCCL_FIND)
#undef REPRISE_NCCL_NEED
#undef REPRISE_NCCL_FIND
  // First the version: an older one has not all of them.
  int version = 0;
  if (out->ncclGetVersion)
    if (const int code = out->ncclGetVersion(&version); code != kNcclSuccess)
      return error(Code::Unsupported, "NCCL does not tell its version: error {}", code);
  out->version_ = text_of(version);
  if (out->ncclGetVersion && version < kOldest)
    return error(Code::Unsupported, "NCCL {} is older than {}, the first whose calls do not wait for other ranks",
                 out->version_, text_of(kOldest));
  if (!absent.empty())
    return error(Code::Unsupported, "several ranks on cuda need NCCL, and the one here has no {}",
                 fmt::join(absent, ", "));
  return std::shared_ptr<const Nccl>(std::move(out));
}

std::string Nccl::words_of(int code) const {
  const char* words = ncclGetErrorString(code);
  const char* more = ncclGetLastError ? ncclGetLastError(nullptr) : nullptr;
  return fmt::format("NCCL error {}{}{}{}{}{}", code, words ? " (" : "", words ? words : "", words ? ")" : "",
                     more && *more ? ": " : "", more && *more ? more : "");
}

}  // namespace reprise::cuda
