#include "backends/ascend/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>

namespace reprise::ascend {
namespace {

// In this order: later ones need symbols of the earlier.
constexpr const char* kRuntime[] = {"libascendcl.so", "libnnopbase.so"};
// The operators are in one library, which is going to be withdrawn, or in several; never in both at once (ops-math
// c4193324, docs/zh/op_api_list.md:12).
constexpr const char* kOperators = "libopapi.so";
constexpr const char* kSplitOperators[] = {"libopapi_math.so", "libopapi_nn.so", "libopapi_transformer.so"};
// Libraries for several devices. CANN 8.1 has no libhcomm.
constexpr const char* kCollectives[] = {"libhcomm.so", "libhccl.so"};

std::string folder_of(const void* address) {
  Dl_info info{};
  if (!dladdr(address, &info) || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// Where the libraries may be: full folders, or "" for the loader's own search path.
std::vector<std::string> folders(const std::string& runtime) {
  if (runtime == "sim") {
    std::vector<std::filesystem::path> bases;
    if (const char* folder = std::getenv("REPRISE_ASCEND_SIM_DIR")) {
      bases = {folder};
    } else {
      std::error_code none;
      const auto binary = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
      bases = {binary / "../lib/ascend-sim", binary / "lib/ascend-sim"};
    }
    // An old CANN that lacks functions has a folder of its own. What is not in it is not there: a library from the
    // folder next to it (CANN 8.1 has no libhcomm) would bring the absent functions back.
    std::vector<std::string> out;
    if (const char* version = std::getenv("ASCEND_SIM_CANN"))
      for (const auto& base : bases)
        if (std::error_code none; *version && std::filesystem::is_directory(base / version, none))
          out.push_back((base / version).lexically_normal());
    if (out.empty())
      for (const auto& base : bases) out.push_back(base.lexically_normal());
    return out;
  }
  std::vector<std::string> out{""};
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"})
    if (const char* home = std::getenv(name)) out.push_back(std::string(home) + "/lib64");
  // Since CANN 8.5, and before it.
  out.emplace_back("/usr/local/Ascend/cann/lib64");
  out.emplace_back("/usr/local/Ascend/ascend-toolkit/latest/lib64");
  return out;
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);)
    if (!part.empty()) out.push_back(part);
  return out;
}

// Libraries of operators that were installed next to the vendor's, those that count most first: the folders of
// ASCEND_CUSTOM_OPP_PATH, then ASCEND_OPP_PATH/vendors in the order that its config.ini gives.
std::vector<std::string> custom_libraries() {
  std::vector<std::string> folders;
  if (const char* named = std::getenv("ASCEND_CUSTOM_OPP_PATH")) folders = parts_of(named, ':');
  if (const char* opp = std::getenv("ASCEND_OPP_PATH")) {
    const std::string vendors = std::string(opp) + "/vendors/";
    std::ifstream config(vendors + "config.ini");
    constexpr std::string_view kPriority = "load_priority=";
    for (std::string line; std::getline(config, line);)
      if (line.starts_with(kPriority))
        for (const std::string& name : parts_of(line.substr(kPriority.size()), ',')) folders.push_back(vendors + name);
  }
  std::vector<std::string> out;
  for (const std::string& folder : folders)
    if (const std::string path = folder + "/op_api/lib/libcust_opapi.so"; std::filesystem::exists(path))
      out.push_back(path);
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
  std::string errors;
  const auto take = [&](const char* name) {
    void* handle = open_one(name, where, errors);
    if (handle) handles_.push_back(handle);
    return handle != nullptr;
  };
  const auto not_found = [&](std::string_view name) {
    return error(Code::Unsupported, "no Ascend runtime: {} was not found ({}): {}", name, errors,
                 runtime == "sim" ? "the simulator is built with the rest (./dev build) and belongs into "
                                    "lib/ascend-sim beside bin; REPRISE_ASCEND_SIM_DIR names another folder"
                                  : "install CANN and source its set_env.sh, or use the simulator: "
                                    "`ascend_runtime` sim");
  };
  for (const char* name : kRuntime)
    if (!take(name)) return not_found(name);
  std::vector<std::string> operators;
  if (runtime != "sim")
    for (const std::string& path : custom_libraries()) {
      if (!take(path.c_str())) return error(Code::Unsupported, "custom operators: {}", errors);
      operators.push_back(path);
    }
  if (take(kOperators)) {
    operators.emplace_back(kOperators);
  } else {
    for (const char* name : kSplitOperators) {
      if (!take(name)) return not_found(fmt::format("{}, and instead of it {},", kOperators, name));
      operators.emplace_back(name);
    }
  }
  for (const char* name : kCollectives) (void)take(name);
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
  report_.push_back(fmt::format("operators: {}", fmt::join(operators, ", ")));
  auto version_of = [this](int32_t package) -> std::string {
    CannVersion version{};
    const bool known = aclsysGetCANNVersion && aclsysGetCANNVersion(package, &version) == ACL_SUCCESS;
    return known && *version.version ? version.version : "unknown";
  };
  version_ = version_of(ACL_PKG_NAME_CANN);
  report_.push_back(fmt::format("CANN: {}", version_));
  driver_ = version_of(ACL_PKG_NAME_DRIVER);
  report_.push_back(fmt::format("driver: {}{}", driver_, driver_ == "unknown" ? "; see `npu-smi info`" : ""));
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
