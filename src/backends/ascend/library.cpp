#include "backends/ascend/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

namespace reprise::ascend {
namespace {

// In this order: later ones need symbols of the earlier.
constexpr const char* kNames[] = {"libascendcl.so", "libnnopbase.so", "libopapi.so", "libhccl.so"};

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
    const bool needed = std::string_view(name) != "libhccl.so";
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
  CannVersion version{};
  if (aclsysGetCANNVersion && aclsysGetCANNVersion(ACL_PKG_NAME_CANN, &version) == ACL_SUCCESS)
    version_ = version.version;
  report_.push_back(fmt::format("CANN: {}", version_));
  version = {};
  const bool told =
      aclsysGetCANNVersion && aclsysGetCANNVersion(ACL_PKG_NAME_DRIVER, &version) == ACL_SUCCESS && *version.version;
  report_.push_back(fmt::format("driver: {}", told ? version.version : "unknown; see `npu-smi info`"));
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
