// Device memory in two halves: addresses, and what lies behind them.
#include "ascend/runtime/world.h"

using namespace ascend_sim;

namespace {

const double kAsk = rate(Rate::HostCall);
const double kMalloc = rate(Rate::HostMalloc);

constexpr size_t kGranule = size_t{2} << 20;

}  // namespace

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t flags) {
  return api("aclrtReserveMemAddress", kMalloc, [&](World& world, Lock&) {
    if (virPtr == nullptr || size == 0) return refuse(kParamInvalid, "virPtr is null or the size is 0");
    if (alignment != 0 || expectPtr != nullptr || flags > 1) {
      return refuse(kParamInvalid, "alignment 0, expectPtr null and flags 0 or 1 are what is allowed");
    }
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    *virPtr = world.memory(context->device).reserve(size);
    return *virPtr != nullptr ? 0 : refuse(kMemoryAllocation, "no range of " + std::to_string(size) + " bytes is left");
  });
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  return api("aclrtReleaseMemAddress", kMalloc, [&](World& world, Lock&) {
    const int device = device_of_address(virPtr);
    const bool known = device >= 0 && device < kMaxDevices && world.memories[device] != nullptr;
    if (known && world.memories[device]->unreserve(virPtr)) return 0;
    return refuse(kParamInvalid, "no reserved range begins at the address, or something is mapped in it");
  });
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop, uint64_t flags) {
  return api("aclrtMallocPhysical", kMalloc, [&](World& world, Lock&) {
    if (handle == nullptr || prop == nullptr) return refuse(kParamInvalid, "handle or prop is null");
    if (size == 0 || size % kGranule != 0 || flags != 0) {
      return refuse(kParamInvalid, "the size is a multiple of 2 MiB and flags is 0");
    }
    std::shared_ptr<Context> context;
    ASCEND_SIM_TRY(current_context(world, &context));
    const bool fault = ++world.mallocs == world.config.faults.malloc_at;
    const uint64_t made = fault ? 0 : world.memory(context->device).allocate_physical(size);
    if (made == 0) return refuse(kMemoryAllocation, "out of device memory: " + std::to_string(size) + " bytes wanted");
    // The handle names its device too.
    *handle = reinterpret_cast<void*>(uint64_t{1} << 61 | static_cast<uint64_t>(context->device) << 48 | made);
    return 0;
  });
}

namespace {

Memory* memory_of_handle(const World& world, aclrtDrvMemHandle handle, uint64_t* number) {
  const auto bits = reinterpret_cast<uint64_t>(handle);
  *number = bits & ((uint64_t{1} << 48) - 1);
  return world.memories[bits >> 48 & (kMaxDevices - 1)].get();
}

}  // namespace

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  return api("aclrtFreePhysical", kMalloc, [&](World& world, Lock&) {
    uint64_t number = 0;
    Memory* memory = memory_of_handle(world, handle, &number);
    if (memory != nullptr && memory->release_physical(number)) return 0;
    return refuse(kInvalidHandle, "not physical memory, or freed before");
  });
}

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  return api("aclrtMapMem", kMalloc, [&](World& world, Lock&) {
    if (offset != 0 || flags != 0) return refuse(kParamInvalid, "offset and flags must be 0");
    uint64_t number = 0;
    Memory* memory = memory_of_handle(world, handle, &number);
    if (memory != nullptr && is_device_address(virPtr) && memory->map(virPtr, size, number)) return 0;
    return refuse(kParamInvalid, "the range is not reserved or not free, or the size is not that of the memory");
  });
}

aclError aclrtUnmapMem(void* virPtr) {
  return api("aclrtUnmapMem", kMalloc, [&](World& world, Lock&) {
    const int device = device_of_address(virPtr);
    const bool known = device >= 0 && device < kMaxDevices && world.memories[device] != nullptr;
    if (known && world.memories[device]->unmap(virPtr)) return 0;
    return refuse(kParamInvalid, "nothing is mapped at the address");
  });
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions option,
                                          size_t* granularity) {
  return api("aclrtMemGetAllocationGranularity", kAsk, [&](World&, Lock&) {
    if (prop == nullptr || granularity == nullptr) return refuse(kParamInvalid, "prop or granularity is null");
    if (option != ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM && option != ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return refuse(kParamInvalid, "the option is " + std::to_string(option) + "; allowed: 0, 1");
    }
    *granularity = kGranule;
    return 0;
  });
}
