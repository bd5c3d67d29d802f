// Init, errors, versions, devices, contexts.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "ascend/runtime/capture.h"
#include "ascend/runtime/device.h"
#include "ascend/runtime/stream.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kMake = rate(Rate::HostCreate);

int null_argument(const char* which) { return refuse(kParamInvalid, std::string(which) + " is null"); }

void copy_text(const std::string& text, char* to, size_t room) { std::snprintf(to, room, "%s", text.c_str()); }

struct Version {
  const char *text, *major, *minor, *release;
};

const Version& cann_version(const World& world) {
  static constexpr Version kVersions[] = {
      {"8.1.RC1", "8", "1", "RC1"}, {"8.5.0", "8", "5", "0"}, {"9.1.0", "9", "1", "0"}};
  return kVersions[static_cast<size_t>(world.config.cann)];
}

int synchronise_device(World& world, Lock& lock, int timeout_ms) {
  if (timeout_ms == 0 || timeout_ms < -1) return refuse(kParamInvalid, "the timeout is -1 (for ever) or above 0");
  std::shared_ptr<Context> context;
  ASCEND_SIM_TRY(current_context(world, &context));
  if (any_capture(world, *context)) {
    return refuse(kStreamCaptured, "not allowed to synchronise the device while a stream of it is capturing");
  }
  int first = 0;
  const std::vector<std::shared_ptr<Stream>> streams = streams_of(world, *context);
  for (const auto& stream : streams) {
    const int code = synchronise(world, lock, stream, timeout_ms);
    if (first == 0) first = code;
    if (code == kStreamSyncTimeout) return code;
  }
  return first;
}

}  // namespace

aclError aclInit(const char* configPath) {
  World& all = world();
  Lock lock(all.mutex);
  thread_state().call = "aclInit";
  if (all.initialised) return refuse(kRepeatInitialize, "aclInit was called before");
  Config config;
  const std::string problem = read_config(&config);
  if (!problem.empty()) return refuse(kInvalidParam, problem);
  const bool both = all.libraries[0] > 0 && all.libraries[1] > 0;
  if (both && holds(Rule::OneOperatorLibrary, config.cann))
    return refuse(text_of(Rule::OneOperatorLibrary).code, refusal(Rule::OneOperatorLibrary, "both are loaded"));
  ++all.epoch;
  all.config = config;
  all.machine.soc = config.soc->name;
  all.machine.generation = config.soc->generation;
  all.machine.cube_cores = config.soc->cube_cores;
  all.machine.vector_cores = config.soc->vector_cores;
  all.machine.computes = config.computes;
  all.machine.cann = config.cann;
  all.machine.refuses = config.faults.refused.name;
  all.machine.refuses_at = config.faults.refused.at;
  all.machine.has_kernels = !config.faults.no_kernels;
  restart_refusals();
  all.assumptions = assumptions(*config.soc, config.computes, config.launch_factor, config.rates);
  all.initialised = true;
  return 0;
}

aclError aclFinalize() {
  return api("aclFinalize", kNoCost, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_not_in_callback());
    close_world(world, lock);
    return 0;
  });
}

const char* aclGetRecentErrMsg() {
  ThreadState& thread = thread_state();
  if (thread.recent.empty()) return nullptr;
  thread.returned = std::move(thread.recent);
  thread.recent.clear();
  return thread.returned.c_str();
}

aclError aclrtGetLastError(aclrtLastErrLevel) { return std::exchange(thread_state().last_error, 0); }
aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return thread_state().last_error; }

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  if (majorVersion == nullptr || minorVersion == nullptr || patchVersion == nullptr) {
    return fail(kParamInvalid, "aclrtGetVersion: an argument is null");
  }
  *majorVersion = 1;
  *minorVersion = 17;
  *patchVersion = 0;
  return 0;
}

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  return api("aclsysGetCANNVersion", kAsk, [&](World& world, Lock&) {
    if (version == nullptr) return null_argument("version");
    if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER) {
      return refuse(kParamInvalid, "the package is " + std::to_string(name) + "; allowed: 0 to 7");
    }
    *version = {};
    if (name == ACL_PKG_NAME_DRIVER) {
      const bool old = world.config.faults.old_driver;
      copy_text(old                      ? "24.1.RC2"
                : world.config.new_stack ? "25.5.0"
                                         : "25.0.RC1",
                version->version, sizeof version->version);
      return 0;
    }
    const Version& cann = cann_version(world);
    copy_text(cann.text, version->version, sizeof version->version);
    copy_text(cann.major, version->majorVersion, sizeof version->majorVersion);
    copy_text(cann.minor, version->minorVersion, sizeof version->minorVersion);
    copy_text(cann.release, version->releaseVersion, sizeof version->releaseVersion);
    return 0;
  });
}

aclError aclsysGetVersionStr(char* pkgName, char* versionStr) {
  return api("aclsysGetVersionStr", kAsk, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_post_8_1(world));
    if (pkgName == nullptr) return null_argument("pkgName");
    if (versionStr == nullptr) return null_argument("versionStr");
    copy_text(cann_version(world).text, versionStr, 128);
    return 0;
  });
}

aclError aclrtSetDevice(int32_t deviceId) {
  return api("aclrtSetDevice", kMake, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_device(world, deviceId));
    if (world.config.faults.no_permission)
      return refuse(kDriverInternal, "the device files cannot be opened (ASCEND_SIM_FAULT=no_permission)");
    Device& device = world.devices[deviceId];
    if (!device.primary) ASCEND_SIM_TRY(make_context(world, deviceId, true, &device.primary));
    ++device.references;
    thread_state().context = device.primary;
    return 0;
  });
}

namespace {

int reset_device(const char* name, int32_t device_id, bool force) {
  return api(name, kMake, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_not_in_callback());
    ASCEND_SIM_TRY(check_device(world, device_id));
    Device& device = world.devices[device_id];
    if (device.references == 0) return refuse(kContextNull, "the device is not set");
    device.references = force ? 0 : device.references - 1;
    if (device.references == 0) close_device(world, lock, device_id);
    return 0;
  });
}

}  // namespace

aclError aclrtResetDevice(int32_t deviceId) { return reset_device("aclrtResetDevice", deviceId, false); }
aclError aclrtResetDeviceForce(int32_t deviceId) { return reset_device("aclrtResetDeviceForce", deviceId, true); }

aclError aclrtGetDevice(int32_t* deviceId) {
  return api("aclrtGetDevice", kAsk, [&](World& world, Lock&) {
    if (deviceId == nullptr) return null_argument("deviceId");
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    *deviceId = context->device;
    return 0;
  });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  return api("aclrtGetDeviceCount", kAsk, [&](World& world, Lock&) {
    if (count == nullptr) return null_argument("count");
    *count = static_cast<uint32_t>(device_count(world));
    return 0;
  });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return api("aclrtGetRunMode", kAsk, [&](World&, Lock&) {
    if (runMode == nullptr) return null_argument("runMode");
    *runMode = ACL_HOST;
    return 0;
  });
}

const char* aclrtGetSocName() {
  const char* name = nullptr;
  api("aclrtGetSocName", kAsk, [&](World& world, Lock&) {
    name = world.config.faults.wrong_chip ? "Ascend310P3" : world.config.soc->name;
    return 0;
  });
  return name;
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return api("aclrtGetMemInfo", kAsk, [&](World& world, Lock&) {
    if (free == nullptr) return null_argument("free");
    if (total == nullptr) return null_argument("total");
    if (attr != ACL_HBM_MEM && attr != ACL_HBM_MEM_HUGE && attr != ACL_HBM_MEM_NORMAL) {
      return refuse(kParamInvalid, "the memory is " + std::to_string(attr) + "; the simulator knows HBM: 1, 4, 5");
    }
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    *free = world.memory(context->device).available();
    *total = world.memory(context->device).total();
    return 0;
  });
}

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value) {
  return api("aclGetDeviceCapability", kAsk, [&](World& world, Lock&) {
    if (value == nullptr) return null_argument("value");
    ASCEND_SIM_TRY(check_device(world, static_cast<int>(deviceId)));
    const Soc& soc = *world.config.soc;
    switch (deviceInfo) {
      case ACL_DEVICE_INFO_AI_CORE_NUM: *value = soc.cube_cores; return 0;
      case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = soc.vector_cores; return 0;
      case ACL_DEVICE_INFO_L2_SIZE: *value = static_cast<int64_t>(soc.l2_bytes); return 0;
    }
    return refuse(kParamInvalid, "the capability is " + std::to_string(deviceInfo) + "; allowed: 0, 1, 2");
  });
}

aclError aclrtSynchronizeDevice(void) {
  return api("aclrtSynchronizeDevice", kNoCost,
             [&](World& world, Lock& lock) { return synchronise_device(world, lock, -1); });
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return api("aclrtSynchronizeDeviceWithTimeout", kNoCost,
             [&](World& world, Lock& lock) { return synchronise_device(world, lock, timeout); });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return api("aclrtCreateContext", kMake, [&](World& world, Lock&) {
    if (context == nullptr) return null_argument("context");
    ASCEND_SIM_TRY(check_device(world, deviceId));
    std::shared_ptr<Context> made;
    ASCEND_SIM_TRY(make_context(world, deviceId, false, &made));
    thread_state().context = made;
    *context = made->handle;
    return 0;
  });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return api("aclrtDestroyContext", kMake, [&](World& world, Lock& lock) {
    auto it = world.contexts.find(context);
    if (it == world.contexts.end()) return refuse(kInvalidHandle, "not a context, or one that was destroyed");
    const std::shared_ptr<Context> found = it->second;
    if (found->primary) return refuse(kParamInvalid, "the device's own context goes with aclrtResetDevice");
    close_context(world, lock, found);
    return 0;
  });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return api("aclrtSetCurrentContext", kAsk, [&](World& world, Lock&) {
    auto it = world.contexts.find(context);
    if (it == world.contexts.end()) return refuse(kInvalidHandle, "not a context, or one that was destroyed");
    thread_state().context = it->second;
    return 0;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return api("aclrtGetCurrentContext", kAsk, [&](World& world, Lock&) {
    if (context == nullptr) return null_argument("context");
    std::shared_ptr<Context> current;
    ASCEND_SIM_TRY(current_context(world, &current));
    *context = current->handle;
    return 0;
  });
}

namespace {

// The arithmetic of the simulator is always deterministic, so there is nothing to switch.
int set_option(const char* name, aclSysParamOpt option, int64_t value, bool needs_context) {
  return api(name, kAsk, [&](World& world, Lock&) {
    std::shared_ptr<Context> context;
    if (needs_context) ASCEND_SIM_TRY(current_context(world, &context));
    if (option < ACL_OPT_DETERMINISTIC || option > ACL_OPT_STRONG_CONSISTENCY) {
      return refuse(kParamInvalid, "the option is " + std::to_string(option) + "; allowed: 0, 1, 2");
    }
    const int64_t most = option == ACL_OPT_DETERMINISTIC && world.config.cann != Cann::V8_1 ? 3 : 1;
    if (value >= 0 && value <= most) return 0;
    return refuse(kParamInvalid, "the value is " + std::to_string(value) + "; allowed: 0 to " + std::to_string(most));
  });
}

}  // namespace

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return set_option("aclrtSetSysParamOpt", opt, value, false);
}
aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return set_option("aclrtCtxSetSysParamOpt", opt, value, true);
}
