#include "ranks/region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

namespace reprise::ranks {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kControlBytes = (sizeof(Control) + kHugePage - 1) / kHugePage * kHugePage;
// Room for logits of 4,096 rows of 262,144 tokens twice, and far more than activations take; only what is touched
// exists.
constexpr size_t kArenaBytes = size_t{16} << 30;
constexpr size_t kMarkBytes = Region::kMarks * sizeof(uint64_t);  // of each of two epochs
constexpr size_t kFirstBytes = kControlBytes + 2 * kMarkBytes;    // in front of the arena

Result<void*> map(int descriptor, size_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED)
    return error(Code::OutOfMemory, "the memory that ranks share could not be mapped: {}", std::strerror(errno));
  return base;
}

}  // namespace

bool Part::fits(const Region& region) const {
  if (row_begin > row_end) return false;
  if (row_end == row_begin) return true;
  const uint64_t all = region.arena_bytes();
  return at <= all && of > 0 && of <= all && row_end <= (all - at) / of && first <= of && width <= of - first &&
         (!owned || row_end <= Region::kMarks);
}

void Control::abort(std::string_view why) {
  uint32_t none = 0;
  if (aborted.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    const size_t bytes = std::min(why.size(), sizeof reason - 1);
    std::memcpy(reason, why.data(), bytes);
    reason[bytes] = 0;
    aborted.store(2, std::memory_order_release);
  }
  ring();
}

std::string Control::reason_text() const {
  if (aborted.load(std::memory_order_acquire) == 0) return {};
  // Who aborts has the reason ready within a copy of some bytes, unless it dies in between.
  for (int i = 0; i < 1000 && aborted.load(std::memory_order_acquire) == 1; ++i) ::sched_yield();
  if (aborted.load(std::memory_order_acquire) != 2) return "a rank ended";
  return std::string(reason, ::strnlen(reason, sizeof reason));
}

void Control::ring() {
  bell.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Result<std::unique_ptr<Region>> Region::create(int ranks) {
  RETURN_IF_ERROR(check_world({0, ranks}));
  const int descriptor = ::memfd_create("reprise-ranks", MFD_CLOEXEC);
  if (descriptor < 0)
    return error(Code::OutOfMemory, "the memory that ranks share could not be made: {}", std::strerror(errno));
  const size_t bytes = kFirstBytes + kArenaBytes;
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
  if (bytes < kFirstBytes) return invalid("descriptor {} is no memory of ranks: it has {} bytes", descriptor, bytes);
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
  if (c.size < 1 || c.size > kMaxRanks || c.arena_bytes > bytes - kFirstBytes)
    return invalid("descriptor {} is no memory of ranks: its sizes contradict each other", descriptor);
  return region;
}

Region::~Region() {
  ::munmap(base_, bytes_);
  ::close(descriptor_);
}

uint8_t* Region::arena() const { return static_cast<uint8_t*>(base_) + kFirstBytes; }

uint64_t* Region::marks(uint64_t epoch) const {
  return reinterpret_cast<uint64_t*>(static_cast<uint8_t*>(base_) + kControlBytes + (epoch & 1) * kMarkBytes);
}

}  // namespace reprise::ranks
