#include "ranks/region.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace reprise::ranks {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kControlBytes = (sizeof(Control) + kHugePage - 1) / kHugePage * kHugePage;
// Room for logits of 4,096 rows of 262,144 tokens twice, and far more than activations take; only what is touched
// exists.
constexpr size_t kArenaBytes = size_t{16} << 30;

Result<void*> map(int descriptor, size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED)
    return error(Code::OutOfMemory, "the memory that ranks share could not be mapped: {}", std::strerror(errno));
  return base;
}

}  // namespace

Result<std::unique_ptr<Region>> Region::create(int ranks) {
  RETURN_IF_ERROR(check_world({0, ranks}));
  const int descriptor = ::memfd_create("reprise-ranks", MFD_CLOEXEC);
  if (descriptor < 0)
    return error(Code::OutOfMemory, "the memory that ranks share could not be made: {}", std::strerror(errno));
  const size_t bytes = kControlBytes + kArenaBytes;
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int why = errno;
    ::close(descriptor);
    return error(Code::OutOfMemory, "the memory that ranks share could not be made: {}", std::strerror(why));
  }
  auto base = map(descriptor, bytes);
  if (!base.is_ok()) {
    ::close(descriptor);
    return base.status();
  }
  auto* control = new (*base) Control;
  control->magic = Control::kMagic;
  control->protocol = Control::kProtocol;
  control->size = ranks;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  control->processors = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  control->arena_bytes = kArenaBytes;
  return std::unique_ptr<Region>(new Region(descriptor, *base, bytes));
}

Result<std::unique_ptr<Region>> Region::open(int descriptor) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0)
    return invalid("descriptor {} is no memory of ranks: {}", descriptor, std::strerror(errno));
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes < kControlBytes) return invalid("descriptor {} is no memory of ranks: it has {} bytes", descriptor, bytes);
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  if (own < 0) return invalid("descriptor {} is no memory of ranks: {}", descriptor, std::strerror(errno));
  auto base = map(own, bytes);
  if (!base.is_ok()) {
    ::close(own);
    return base.status();
  }
  std::unique_ptr<Region> region(new Region(own, *base, bytes));
  const Control& c = region->control();
  if (c.magic != Control::kMagic) return invalid("descriptor {} is no memory of ranks", descriptor);
  if (c.protocol != Control::kProtocol)
    return invalid("the front speaks version {} of the protocol of ranks, this program {}; start one build on all",
                   c.protocol, Control::kProtocol);
  if (c.size < 1 || c.size > kMaxRanks || c.arena_bytes > bytes - kControlBytes)
    return invalid("descriptor {} is no memory of ranks: its sizes contradict each other", descriptor);
  return region;
}

Region::~Region() {
  ::munmap(base_, bytes_);
  ::close(descriptor_);
}

uint8_t* Region::arena() const { return static_cast<uint8_t*>(base_) + kControlBytes; }

}  // namespace reprise::ranks
