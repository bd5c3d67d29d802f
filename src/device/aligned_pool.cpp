#include "device/aligned_pool.h"

namespace reprise {
namespace {

constexpr size_t kLarge = size_t{2} << 20;

bool fits(const void* p, size_t alignment) { return reinterpret_cast<uintptr_t>(p) % alignment == 0; }
void* align(void* p, size_t alignment) {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(p) + alignment - 1) & ~(alignment - 1));
}

}  // namespace

Result<Buffer> AlignedPool::allocate(size_t bytes, std::string_view label) {
  if (bytes == 0) return Buffer();
  const size_t alignment = bytes >= kLarge ? kLarge : 256;
  void* raw = nullptr;
  Status status = bytes > limit_ ? error(Code::OutOfMemory, "there are {} in all", limit_) : allocate_raw(bytes, &raw);
  if (status.is_ok() &&
      !fits(raw, alignment)) {  // usually it comes aligned, so room for that is taken when it does not
    free_raw(raw);
    status = allocate_raw(bytes + alignment, &raw);
  }
  if (!status.is_ok())
    return error(status.code(), "{}: {} bytes could not be allocated: {}", label, bytes, status.message());
  void* data = align(raw, alignment);
  status = zero(data, bytes);
  if (!status.is_ok()) {
    free_raw(raw);
    return status.at(label);
  }
  std::string name(label);
  ledger_.add(name, bytes);
  return Buffer(data, bytes, [this, raw, name](void*, size_t size) {
    free_raw(raw);
    ledger_.remove(name, size);
  });
}

}  // namespace reprise
