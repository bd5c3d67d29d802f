#include "ascend/runtime/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "ascend/rules.h"

namespace ascend_sim {

namespace {

constexpr size_t kSlot = size_t{1} << 20;
constexpr char kMark[16] = "ascend-sim root";

// How the block is found.
struct Door {
  char mark[16];
  int32_t process;
  int32_t descriptor;
  uint64_t inode;
};

std::mutex doors_mutex;
std::set<int>& doors() {
  static std::set<int>& open = *new std::set<int>;
  return open;
}

}  // namespace

// Entries and slots are there twice: a rank writes those of its next meeting while others still read the last one's.
// It cannot come to the one after that before all have read.
struct Meeting::Block {
  struct Entry {
    What what;
    uint64_t bytes;
    double clock;
  };
  struct alignas(64) Line {
    std::atomic<uint32_t> joined;
    std::atomic<uint32_t> left;
    std::atomic<uint64_t> arrived;
    Entry entry[2];
  };
  std::atomic<int32_t> size;
  std::atomic<uint32_t> shut;  // its descriptor is closed, and the number may be that of another meeting
  int32_t process, descriptor;
  Line line[kMaxRanks];
  alignas(4096) uint8_t slot[2][kMaxRanks][kSlot];
};

std::string Meeting::What::text() const {
  return std::string(name, strnlen(name, sizeof name)) + " of " + std::to_string(count) + " elements of type " +
         std::to_string(type) + (reduction >= 0 ? ", reduction " + std::to_string(reduction) : "") +
         (root >= 0 ? ", root " + std::to_string(root) : "");
}

bool Meeting::found(void* information, size_t bytes) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
  const int descriptor = ::memfd_create("ascend-sim-communicator", MFD_CLOEXEC);
  struct stat status {};
  if (descriptor < 0) return false;
  if (bytes < sizeof(Door) || ::ftruncate(descriptor, sizeof(Block)) != 0 || ::fstat(descriptor, &status) != 0) {
    ::close(descriptor);
    return false;
  }
  Door door{};
  std::memcpy(door.mark, kMark, sizeof kMark);
  door.process = ::getpid();
  door.descriptor = descriptor;
  door.inode = status.st_ino;
  std::memset(information, 0, bytes);
  std::memcpy(information, &door, sizeof door);
  std::lock_guard lock(doors_mutex);
  doors().insert(descriptor);
  return true;
}

std::shared_ptr<Meeting> Meeting::join(const void* information, int size, int rank, std::string* problem) {
  const auto no = [&](const std::string& why) {
    *problem = why;
    return nullptr;
  };
  Door door;
  std::memcpy(&door, information, sizeof door);
  if (std::memcmp(door.mark, kMark, sizeof kMark) != 0)
    return no("the root's information is not what HcclGetRootInfo wrote");
  const std::string path = "/proc/" + std::to_string(door.process) + "/fd/" + std::to_string(door.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return no("the root's process is not there (" + path + ": " + std::strerror(errno) + ")");
  struct stat status {};
  const bool same = ::fstat(descriptor, &status) == 0 && status.st_ino == door.inode &&
                    status.st_size == static_cast<off_t>(sizeof(Block));
  void* at = same ? ::mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  ::close(descriptor);
  if (at == MAP_FAILED) return no(same ? "the communicator's memory cannot be mapped" : "the root has closed this one");
  auto* block = static_cast<Block*>(at);
  std::shared_ptr<Meeting> out(new Meeting(block, size, rank));
  int32_t none = 0;
  if (!block->size.compare_exchange_strong(none, size) && none != size)
    return no("another rank says " + std::to_string(none) + " ranks, this one " + std::to_string(size));
  if (block->line[rank].joined.exchange(1) != 0) return no("rank " + std::to_string(rank) + " is there already");
  if (door.process == ::getpid()) {
    block->descriptor = door.descriptor;
    block->process = door.process;
  }
  return out;
}

Meeting::~Meeting() { ::munmap(block_, sizeof(Block)); }

bool Meeting::complete() const {
  return std::all_of(block_->line, block_->line + size_, [](const Block::Line& l) { return l.joined.load() != 0; });
}

void Meeting::close_door() {
  // Ranks may be threads of the root's process, and each comes here.
  if (block_->process != ::getpid() || block_->shut.exchange(1) != 0) return;
  std::lock_guard lock(doors_mutex);
  if (doors().erase(block_->descriptor) != 0) ::close(block_->descriptor);
}

void Meeting::leave() { block_->line[rank_].left.store(1); }

std::string Meeting::exchange(const What& what, const void* data, size_t bytes, double* clock,
                              const std::function<void(const Parts&)>& take, const std::function<std::string()>& stop) {
  Block::Line& mine = block_->line[rank_];
  double latest = *clock;
  for (size_t piece = 0, pieces = 1; piece < pieces; ++piece) {
    const uint64_t number = met_ + 1;
    const size_t side = number % 2, offset = piece * kSlot;
    mine.entry[side] = {what, bytes, *clock};
    if (offset < bytes)
      std::memcpy(block_->slot[side][rank_], static_cast<const uint8_t*>(data) + offset,
                  std::min(kSlot, bytes - offset));
    mine.arrived.store(met_ = number, std::memory_order_release);
    Parts parts;
    parts.offset = offset;
    for (int r = 0; r < size_; ++r) {
      const Block::Line& other = block_->line[r];
      for (int round = 0; other.arrived.load(std::memory_order_acquire) < number; ++round) {
        if (other.left.load() != 0 && other.arrived.load(std::memory_order_acquire) < number)
          return "rank " + std::to_string(r) + " has left the communicator";
        if (round < 200) {
          std::this_thread::yield();
          continue;
        }
        if (std::string why = stop(); !why.empty()) return why;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      const Block::Entry& entry = other.entry[side];
      if (!(entry.what == what))
        return refusal(Rule::CollectiveSame, "rank " + std::to_string(r) + " runs " + entry.what.text() + ", rank " +
                                                 std::to_string(rank_) + " " + what.text());
      latest = std::max(latest, entry.clock);
      pieces = std::max<size_t>(pieces, (entry.bytes + kSlot - 1) / kSlot);
      parts.data[r] = block_->slot[side][r];
      parts.bytes[r] = offset < entry.bytes ? std::min<size_t>(kSlot, entry.bytes - offset) : 0;
    }
    take(parts);
  }
  *clock = latest;
  return "";
}

}  // namespace ascend_sim
