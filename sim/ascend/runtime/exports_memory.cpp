// Memory and copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ascend/runtime/capture.h"
#include "ascend/runtime/device.h"
#include "ascend/runtime/fill.h"
#include "ascend/runtime/stream.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kMalloc = rate(Rate::HostMalloc);
const double kQueue = rate(Rate::HostAsyncCopy);

constexpr size_t kExtra = 32;  // what A2 and A3 add behind every block of aclrtMalloc
constexpr size_t kMovesAnyway = size_t{1} << 20;

enum class Place { Device, Pinned, Pageable };

Place place_of(const World& world, const void* address, size_t bytes) {
  if (is_device_address(address)) return Place::Device;
  return is_pinned(world, address, bytes) ? Place::Pinned : Place::Pageable;
}

int allocate(const char* name, void** pointer, size_t size, aclrtMemMallocPolicy policy, size_t extra) {
  return api(name, kMalloc, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_not_in_callback());
    if (pointer == nullptr) return refuse(kParamInvalid, "devPtr is null");
    if (size == 0) return refuse(kParamInvalid, "the size is 0");
    if ((policy & 0xFF) > 7) {
      return refuse(kParamInvalid, "the policy is " + std::to_string(policy) + "; allowed: 0 to 7, with type flags");
    }
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    Memory& memory = world.memory(context->device);
    const bool fault = ++world.mallocs == world.config.faults.malloc_at;
    *pointer = fault ? nullptr : memory.allocate(size, extra);
    if (*pointer != nullptr) return 0;
    return refuse(kMemoryAllocation, "out of device memory: " + std::to_string(size) + " bytes wanted, " +
                                         std::to_string(memory.available()) + " of " + std::to_string(memory.total()) +
                                         " free" + (fault ? " (fault on demand, ASCEND_SIM_FAULT)" : ""));
  });
}

int release(World& world, void* pointer) {
  if (pointer == nullptr) return refuse(kParamInvalid, "the address is null");
  const int device = device_of_address(pointer);
  const bool ours = device >= 0 && device < kMaxDevices && world.memories[device] != nullptr;
  const size_t bytes = ours ? world.memories[device]->release(pointer) : 0;
  world.accesses.forget(pointer, bytes);
  if (bytes > 0) return 0;
  return refuse(kParamInvalid, "no block begins at the address, or it was freed before");
}

// The sides that the kind names; addresses must agree with it.
int check_sides(aclrtMemcpyKind kind, Place to, Place from) {
  const bool to_device = to == Place::Device;
  const bool from_device = from == Place::Device;
  bool agrees = false;
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_HOST: agrees = !to_device && !from_device; break;
    case ACL_MEMCPY_HOST_TO_DEVICE:
    case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: agrees = to_device && !from_device; break;
    case ACL_MEMCPY_DEVICE_TO_HOST: agrees = !to_device && from_device; break;
    case ACL_MEMCPY_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INNER_DEVICE_TO_DEVICE:
    case ACL_MEMCPY_INTER_DEVICE_TO_DEVICE: agrees = to_device && from_device; break;
    case ACL_MEMCPY_DEFAULT: agrees = true; break;
  }
  if (agrees) return 0;
  return refuse(kParamInvalid, "the kind is " + std::to_string(kind) + " but the copy goes from " +
                                   (from_device ? "device" : "host") + " to " + (to_device ? "device" : "host") +
                                   " memory");
}

int check_copy(const void* to, size_t room, const void* from, size_t bytes) {
  if (to == nullptr || from == nullptr) return refuse(kParamInvalid, "an address is null");
  if (bytes == 0) return refuse(kParamInvalid, "the size is 0");
  if (room >= bytes) return 0;
  return refuse(kParamInvalid,
                "destMax is " + std::to_string(room) + ", less than the " + std::to_string(bytes) + " bytes to write");
}

// Null where the range is not alive; host memory is taken as it is.
void* resolve(const World& world, const void* address, size_t bytes) {
  if (!is_device_address(address)) return const_cast<void*>(address);
  const int device = device_of_address(address);
  if (device >= kMaxDevices || !world.memories[device]) return nullptr;
  return world.memories[device]->host(address, bytes);
}

// On the calling thread, at once.
int copy_now(World& world, Lock& lock, void* to, const void* from, size_t bytes) {
  void* target = resolve(world, to, bytes);
  const void* source = resolve(world, from, bytes);
  if (target == nullptr || source == nullptr) {
    return refuse(kParamInvalid, std::string(target == nullptr ? "the destination" : "the source") +
                                     " is not alive: freed, never allocated, or beyond the end of its block");
  }
  for (const auto& [address, written] : {std::pair<const void*, bool>{to, true}, {from, false}}) {
    if (!is_device_address(address)) continue;
    const std::string race = host_access(world, address, bytes, written, "a synchronous copy");
    if (!race.empty()) return refuse(kCoreException, race);
  }
  const bool link = is_device_address(to) != is_device_address(from);
  charge_host(rate(Rate::HostSync) + (link ? link_copy_micros(bytes) : device_copy_micros(*world.config.soc, bytes)));
  if (world.config.computes || bytes <= kMovesAnyway) {
    lock.unlock();
    std::memmove(target, source, bytes);
    lock.lock();
  }
  moved(world);  // a value may be what a stream waits for
  return 0;
}

int check_unsafe(World& world) {
  std::shared_ptr<Context> context;
  ASCEND_SIM_TRY(current_context(world, &context));
  if (unsafe_call_allowed(world, *context)) return 0;
  return refuse(kCaptureMode, "a synchronous copy or fill is not allowed while capturing in this mode");
}

}  // namespace

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return allocate("aclrtMalloc", devPtr, size, policy, kExtra);
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return allocate("aclrtMallocAlign32", devPtr, size, policy, 0);
}

aclError aclrtFree(void* devPtr) {
  return api("aclrtFree", kMalloc, [&](World& world, Lock&) { return release(world, devPtr); });
}

aclError aclrtFreeWithDevSync(void* devPtr) {
  return api("aclrtFreeWithDevSync", kMalloc, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_post_8_1(world));
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    if (any_capture(world, *context)) return refuse(kStreamCaptured, "not allowed while a stream is capturing");
    const std::vector<std::shared_ptr<Stream>> streams = streams_of(world, *context);
    for (const auto& stream : streams) ASCEND_SIM_TRY(synchronise(world, lock, stream, -1));
    return release(world, devPtr);
  });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return api("aclrtMallocHost", kMalloc, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_not_in_callback());
    if (hostPtr == nullptr) return refuse(kParamInvalid, "hostPtr is null");
    if (size == 0) return refuse(kParamInvalid, "the size is 0");
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    void* block = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (block == nullptr) return refuse(200000, "out of host memory: " + std::to_string(size) + " bytes wanted");
    world.pinned[reinterpret_cast<uintptr_t>(block)] = size;
    world.owned[reinterpret_cast<uintptr_t>(block)] = block;
    *hostPtr = block;
    return 0;
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return api("aclrtFreeHost", kMalloc, [&](World& world, Lock&) {
    if (hostPtr == nullptr) return refuse(kParamInvalid, "the address is null");
    if (world.owned.erase(reinterpret_cast<uintptr_t>(hostPtr)) == 0) {
      return refuse(kParamInvalid, "no block of aclrtMallocHost begins at the address");
    }
    world.pinned.erase(reinterpret_cast<uintptr_t>(hostPtr));
    std::free(hostPtr);
    return 0;
  });
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  return api("aclrtHostRegisterV2", kMalloc, [&](World& world, Lock&) {
    ASCEND_SIM_TRY(check_post_8_1(world));
    constexpr uint32_t kMapped = 0x2, kPinned = 0x10000000;
    if (ptr == nullptr || size == 0) return refuse(kParamInvalid, "the range is empty");
    if (reinterpret_cast<uintptr_t>(ptr) % 4096 != 0)
      return refuse(kParamInvalid, "the address is no multiple of 4096");
    if (flag == 0 || (flag & ~(kMapped | kPinned)) != 0) {
      return refuse(kParamInvalid, "the flags are " + std::to_string(flag) + "; allowed: 0x2, 0x10000000, or-ed");
    }
    if (!world.pinned.try_emplace(reinterpret_cast<uintptr_t>(ptr), size).second) {
      return refuse(kParamInvalid, "the range is registered already");
    }
    return 0;
  });
}

aclError aclrtHostUnregister(void* ptr) {
  return api("aclrtHostUnregister", kMalloc, [&](World& world, Lock&) {
    const auto key = reinterpret_cast<uintptr_t>(ptr);
    if (world.owned.count(key) > 0 || world.pinned.erase(key) == 0) {
      return refuse(kParamInvalid, "no registered range begins at the address");
    }
    return 0;
  });
}

aclError aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes) {
  return api("aclrtPointerGetAttributes", kAsk, [&](World& world, Lock&) {
    if (ptr == nullptr) return refuse(kParamInvalid, "ptr is null");
    if (attributes == nullptr) return refuse(kParamInvalid, "attributes is null");
    *attributes = {};
    const Place place = place_of(world, ptr, 1);
    const bool device = place == Place::Device && resolve(world, ptr, 1) != nullptr;
    attributes->location.id = device ? static_cast<uint32_t>(device_of_address(ptr)) : 0;
    attributes->location.type = device                   ? ACL_MEM_LOCATION_TYPE_DEVICE
                                : place == Place::Pinned ? ACL_MEM_LOCATION_TYPE_HOST
                                                         : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
    attributes->pageSize = 4096;
    return 0;
  });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  return api("aclrtMemcpy", kNoCost, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_not_in_callback());
    ASCEND_SIM_TRY(check_copy(dst, destMax, src, count));
    ASCEND_SIM_TRY(check_sides(kind, place_of(world, dst, count), place_of(world, src, count)));
    ASCEND_SIM_TRY(check_unsafe(world));
    return copy_now(world, lock, dst, src, count);
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return api("aclrtMemcpyAsync", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_copy(dst, destMax, src, count));
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    const Place to = place_of(world, dst, count);
    const Place from = place_of(world, src, count);
    if (to != Place::Device && from != Place::Device) {
      return refuse(kNotSupported, "an asynchronous copy between two places of the host");
    }
    ASCEND_SIM_TRY(check_sides(kind, to, from));
    Task task;
    task.what = CopyTask{dst, src, count};
    if (to != Place::Pageable && from != Place::Pageable) return submit(world, lock, found, std::move(task));
    if (found->capture) return refuse(text_of(Rule::PageableInCapture).code, refusal(Rule::PageableInCapture, ""));
    if (found->update) return submit(world, lock, found, std::move(task));
    if (!unsafe_call_allowed(world, *found->context)) {
      return refuse(kCaptureBlockAsync, "a copy of pageable memory waits for its stream, which a capture forbids now");
    }
    // Pageable memory: after everything before it, and done when the call returns.
    ASCEND_SIM_TRY(synchronise(world, lock, found, -1));
    return copy_now(world, lock, dst, src, count);
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return api("aclrtMemset", kNoCost, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_not_in_callback());
    ASCEND_SIM_TRY(check_copy(devPtr, maxCount, devPtr, count));
    ASCEND_SIM_TRY(check_unsafe(world));
    void* at = resolve(world, devPtr, count);
    if (at == nullptr) return refuse(kParamInvalid, "the destination is not alive");
    const std::string race = host_access(world, devPtr, count, true, "a synchronous fill");
    if (!race.empty()) return refuse(kCoreException, race);
    charge_host(rate(Rate::HostSync) + device_copy_micros(*world.config.soc, count / 2));
    if (world.config.computes || count <= kMovesAnyway) {
      lock.unlock();
      fill_bytes(at, value, count, is_device_address(devPtr));
      lock.lock();
    }
    moved(world);
    return 0;
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return api("aclrtMemsetAsync", kQueue, [&](World& world, Lock& lock) {
    ASCEND_SIM_TRY(check_copy(devPtr, maxCount, devPtr, count));
    if (!is_device_address(devPtr)) return refuse(kParamInvalid, "the address is not one of device memory");
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    return submit(world, lock, found, Task{FillTask{devPtr, value, count}, 0});
  });
}

aclError aclrtCmoAsync(void* src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
  return api("aclrtCmoAsync", kQueue, [&](World& world, Lock& lock) {
    if (src == nullptr) return refuse(kParamInvalid, "src is null");
    if (size == 0) return refuse(kParamInvalid, "the size is 0");
    if (cmoType != ACL_RT_CMO_TYPE_PREFETCH)
      return refuse(text_of(Rule::CmoPrefetchOnly).code,
                    refusal(Rule::CmoPrefetchOnly, "type " + std::to_string(cmoType) + "."));
    std::shared_ptr<Stream> found;
    ASCEND_SIM_TRY(find_stream(world, stream, &found));
    if (!is_device_address(src) || device_of_address(src) != found->context->device)
      return refuse(text_of(Rule::CmoOwnMemory).code, refusal(Rule::CmoOwnMemory, ""));
    Task task;
    task.what = PrefetchTask{src, size};
    return submit(world, lock, found, std::move(task));
  });
}
