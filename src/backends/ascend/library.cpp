#include "backends/ascend/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>

namespace reprise::ascend {
namespace {

// In this order: later ones need symbols of the earlier.
constexpr const char* kNames[] = {"libascendcl.so", "libnnopbase.so", "libopapi.so", "libhcomm.so", "libhccl.so"};
// Of several devices; CANN 8.1 has no libhcomm.
constexpr const char* kCollectives[] = {"libhcomm.so", "libhccl.so"};

std::string folder_of(const void* address) {
  Dl_info info{};
  if (!dladdr(address, &info) || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// Where the libraries may be: full folders, or "" for the loader's own search path.
std::vector<std::string> folders(const std::string& runtime) {
  if (runtime == "sim") {
    if (const char* folder = std::getenv("REPRISE_ASCEND_SIM_DIR")) return {folder};
    std::error_code none;
    const auto binary = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
    return {(binary / "../lib/ascend-sim").lexically_normal(), (binary / "lib/ascend-sim").lexically_normal()};
  }
  std::vector<std::string> out{""};
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"})
    if (const char* home = std::getenv(name)) out.push_back(std::string(home) + "/lib64");
  out.emplace_back("/usr/local/Ascend/ascend-toolkit/latest/lib64");
  return out;
}

// The first folder's that opens; `errors` keeps what the loader said.
void* open_one(const std::string& name, const std::vector<std::string>& where, std::string& errors) {
  for (const std::string& folder : where) {
    const std::string path = folder.empty() ? name : folder + "/" + name;
    if (!folder.empty() && !std::filesystem::exists(path)) {
      errors += (errors.empty() ? "" : "; ") + path + ": not there";
      continue;
    }
    if (void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL)) return handle;
    const char* why = dlerror();
    errors += (errors.empty() ? "" : "; ") + (why ? std::string(why) : path);
  }
  return nullptr;
}

}  // namespace

void* Library::symbol(const std::string& name) const {
  for (void* handle : handles_)
    if (void* found = dlsym(handle, name.c_str())) return found;
  return nullptr;
}

Status Library::load(const std::string& runtime) {
  const std::vector<std::string> where = folders(runtime);
  for (const char* name : kNames) {
    std::string errors;
    void* handle = open_one(name, where, errors);
    const bool needed =
        std::find(std::begin(kCollectives), std::end(kCollectives), std::string_view(name)) == std::end(kCollectives);
    if (!handle && needed) {
      return error(Code::Unsupported, "no Ascend runtime: {} was not found ({}): {}", name, errors,
                   runtime == "sim" ? "the simulator is built with the rest (./dev build) and belongs into "
                                      "lib/ascend-sim beside bin; REPRISE_ASCEND_SIM_DIR names another folder"
                                    : "install CANN and source its set_env.sh, or use the simulator: "
                                      "--ascend-runtime sim");
    }
    if (handle) handles_.push_back(handle);
  }
  std::vector<std::string> missing, absent, missing_sim;
  auto find = [this](const char* name, std::vector<std::string>& list) {
    void* found = symbol(name);
    if (!found) list.emplace_back(name);
    return found;
  };
#define REPRISE_ACL_REQUIRED(name, result, arguments) name = reinterpret_cast<decltype(name)>(find(#name, missing));
#define REPRISE_ACL_OPTIONAL(name, result, arguments) \
  name = reinterpret_cast<decltype(name)>(            \
      find(#name, std::string_view(#name).starts_with("ascendSim") ? missing_sim : absent));
  REPRISE_ACL_FUNCTIONS(REPRISE_ACL_REQUIRED, REPRISE_ACL_OPTIONAL)
#undef REPRISE_ACL_REQUIRED
#undef REPRISE_ACL_OPTIONAL
  if (!missing.empty())
    return error(Code::Unsupported, "the Ascend runtime lacks {}; CANN 8.1.RC1 or later is needed",
                 fmt::join(missing, ", "));
  const int code = aclInit(nullptr);
  if (code != ACL_ERROR_REPEAT_INITIALIZE) RETURN_IF_ERROR(check(code, "initialise the runtime"));
  initialised_ = code == ACL_SUCCESS;
  const std::string folder = folder_of(reinterpret_cast<const void*>(aclInit));
  report_.push_back(fmt::format("runtime: {}{}", folder, simulated() ? " (the simulator: no NPU computes)" : ""));
  auto version_of = [this](int32_t package) -> std::string {
    CannVersion version{};
    const bool told = aclsysGetCANNVersion && aclsysGetCANNVersion(package, &version) == ACL_SUCCESS;
    return told && *version.version ? version.version : "unknown";
  };
  version_ = version_of(ACL_PKG_NAME_CANN);
  report_.push_back(fmt::format("CANN: {}", version_));
  const std::string driver = version_of(ACL_PKG_NAME_DRIVER);
  report_.push_back(fmt::format("driver: {}{}", driver, driver == "unknown" ? "; see `npu-smi info`" : ""));
  collectives_.find(*this);
  for (std::string& line : collectives_.report(version_of(ACL_PKG_NAME_HCCL))) report_.push_back(std::move(line));
  if (absent.empty()) report_.emplace_back("optional functions not there: none");
  for (const std::string& name : absent)
    report_.push_back(fmt::format("optional function not there: {}: {}", name, purpose_of(name)));
  return Status::ok();
}

Result<std::shared_ptr<const Library>> Library::open(const std::string& runtime) {
  if (runtime != "system" && runtime != "sim") return invalid("Ascend runtime \"{}\"; allowed: system, sim", runtime);
  // The runtime is one per process, so it lives as long as any device uses it.
  static std::mutex mutex;
  static std::weak_ptr<const Library> opened;
  static std::string opened_as;
  std::lock_guard lock(mutex);
  if (auto known = opened.lock()) {
    if (opened_as == runtime) return known;
    return error(Code::Unsupported, "this process uses the Ascend runtime \"{}\" already", opened_as);
  }
  std::shared_ptr<Library> library(new Library());
  RETURN_IF_ERROR(library->load(runtime));
  opened = library;
  opened_as = runtime;
  return std::shared_ptr<const Library>(std::move(library));
}

// The libraries stay mapped: they have threads and exit handlers of their own.
Library::~Library() {
  if (initialised_) (void)aclFinalize();
}

Status Library::check(int code, std::string_view what) const {
  if (code == ACL_SUCCESS) return Status::ok();
  const char* text = aclGetRecentErrMsg ? aclGetRecentErrMsg() : nullptr;
  const Code kind = loses_device(code)                       ? Code::DeviceLost
                    : code == ACL_ERROR_RT_MEMORY_ALLOCATION ? Code::OutOfMemory
                                                             : Code::Device;
  return error(kind, "ascend: {}: {}{}{}", what, error_text(code), text && *text ? ": " : "", text ? text : "");
}

}  // namespace reprise::ascend
