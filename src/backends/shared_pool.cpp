#include "backends/shared_pool.h"

namespace reprise {

Result<Buffer> SharedPool::allocate(size_t bytes, std::string_view label) {
  if (bytes == 0) return Buffer();
  constexpr size_t kUnit = 4096, kHugePage = size_t{2} << 20;
  const size_t unit = bytes >= kHugePage ? kHugePage : kUnit;
  const size_t at = (used_ + unit - 1) / unit * unit;
  if (bytes > region_.arena_bytes() || at > region_.arena_bytes() - bytes)
    return error(Code::OutOfMemory, "{}: {} bytes do not fit what ranks share; {} of {} are taken", label, bytes, used_,
                 region_.arena_bytes());
  used_ = at + bytes;
  ++buffers_;
  std::string name(label);
  ledger_.add(name, bytes);
  return Buffer(region_.arena() + at, bytes, [this, name](void*, size_t size) {
    ledger_.remove(name, size);
    if (--buffers_ == 0) used_ = 0;
  });
}

}  // namespace reprise
