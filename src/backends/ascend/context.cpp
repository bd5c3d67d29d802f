#include "backends/ascend/context.h"

#include <cstring>
#include <numeric>
#include <span>
#include <utility>

namespace reprise::ascend {

Context::Context(std::shared_ptr<const Library> library, bool fused_attention, int device)
    : library_(std::move(library)), fused_attention_(fused_attention), device_(device) {
  operators_.find(*library_);
  if (const char* name = library_->aclrtGetSocName()) soc_ = name;
}

Context::~Context() {
  if (!attach().is_ok()) return;
  communicator_.reset();
  for (auto& [key, address] : constants_) (void)library_->aclrtFree(address);
}

Status Context::attach() const {
  // A thread stays with its device, so one look suffices for each of them.
  thread_local const Library* attached = nullptr;
  thread_local int attached_to = 0;
  if (attached == library_.get() && attached_to == device_) {
    aclrtContext current = nullptr;
    if (library_->aclrtGetCurrentContext(&current) == ACL_SUCCESS && current) return Status::ok();
  }
  RETURN_IF_ERROR(library_->check(library_->aclrtSetDevice(device_), "use the device"));
  attached = library_.get();
  attached_to = device_;
  return Status::ok();
}

Status Context::join(std::shared_ptr<ranks::Member> member, bool for_experts) {
  RETURN_IF_ERROR(attach());
  ASSIGN_OR_RETURN(communicator_, Communicator::make(library_, std::move(member), for_experts));
  return Status::ok();
}

void* Context::constant(const std::string& key, size_t bytes, const std::function<void(void*)>& fill) {
  std::lock_guard lock(mutex_);
  if (auto known = constants_.find(key); known != constants_.end()) return known->second;
  if (auto known = failed_.find(key); known != failed_.end()) {
    constant_error_ = known->second;
    return nullptr;
  }
  void* device = nullptr;
  const Status made = make_constant(bytes, fill, device);
  if (!made.is_ok()) {
    if (device) (void)library_->aclrtFree(device);
    constant_error_ = made;
    failed_.emplace(key, made);
    return nullptr;
  }
  constants_[key] = device;
  return device;
}

Status Context::make_constant(size_t bytes, const std::function<void(void*)>& fill, void*& device) const {
  RETURN_IF_ERROR(attach());
  const Library& acl = *library_;
  const std::string what = fmt::format("make a constant of {} bytes", bytes);
  void* host = nullptr;
  aclrtStream stream = nullptr;
  RETURN_IF_ERROR(acl.check(acl.aclrtMalloc(&device, bytes, ACL_MEM_MALLOC_HUGE_FIRST), what));
  RETURN_IF_ERROR(acl.check(acl.aclrtMallocHost(&host, bytes), what));
  Status done =
      acl.check(acl.aclrtCreateStreamWithConfig(&stream, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC), what);
  if (done.is_ok()) {
    fill(host);
    done = acl.check(acl.aclrtMemcpyAsync(device, bytes, host, bytes, ACL_MEMCPY_HOST_TO_DEVICE, stream), what);
    if (done.is_ok()) done = acl.check(acl.aclrtSynchronizeStream(stream), what);
    (void)acl.aclrtDestroyStreamForce(stream);
  }
  (void)acl.aclrtFreeHost(host);
  return done;
}

Status Context::take_constant_error() {
  std::lock_guard lock(mutex_);
  return std::exchange(constant_error_, Status::ok());
}

void* Context::row_numbers() {
  return constant("row numbers", kRows * sizeof(int64_t), [](void* to) {
    const std::span<int64_t> out(static_cast<int64_t*>(to), kRows);
    std::iota(out.begin(), out.end(), int64_t{0});
  });
}

void* Context::ones() {
  return constant("ones", kRows * sizeof(float), [](void* to) {
    const std::span<float> out(static_cast<float*>(to), kRows);
    std::fill(out.begin(), out.end(), 1.f);
  });
}

void* Context::causal_mask() {
  return constant("causal mask", kMask * kMask, [](void* to) {
    auto* out = static_cast<uint8_t*>(to);
    for (int64_t i = 0; i < kMask; ++i)
      for (int64_t j = 0; j < kMask; ++j) out[i * kMask + j] = j > i ? 1 : 0;
  });
}

}  // namespace reprise::ascend
