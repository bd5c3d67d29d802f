// The memory of one device: an address range that is reserved at once and touched lazily. Device addresses carry a tag
// that no host address has, so that the host faults when it follows one. Between blocks lie red zones; freed blocks
// wait in a quarantine before their addresses come back. Owned by the World; any thread may call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

namespace ascend_sim {

// Tagged addresses: nothing is looked up.
bool is_device_address(const void* address);
// The device whose range the address lies in, or -1.
int device_of_address(const void* address);

class Memory {
 public:
  // With poison, new and freed blocks up to 8 MiB are filled with 0xFF (a NaN in bf16); others read as zero.
  Memory(int device, size_t hbm_bytes, bool poison);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bool usable() const { return base_ != nullptr; }

  // Null where the memory is used up. `extra` is what the allocator adds behind the rounded size.
  void* allocate(size_t bytes, size_t extra);
  // How many bytes the block had; 0 where none begins there.
  size_t release(void* address);

  // Addresses without memory, and memory without addresses.
  void* reserve(size_t bytes);
  bool unreserve(void* address);             // false: no such range, or something is still mapped in it
  uint64_t allocate_physical(size_t bytes);  // 0: the memory is used up
  bool release_physical(uint64_t handle);    // takes effect after the last unmap
  bool map(void* address, size_t bytes, uint64_t handle);
  bool unmap(void* address);

  // Whether all of it belongs to living memory.
  bool alive(const void* address, size_t bytes) const;
  // Where the bytes are on the host; null where they are not alive.
  void* host(const void* address, size_t bytes) const;

  // All but so many bytes belong to another process.
  void leave(size_t bytes);

  size_t total() const { return hbm_; }
  size_t available() const;

 private:
  struct Block {
    size_t begin = 0;  // of the span, red zones included
    size_t span = 0;
    size_t bytes = 0;
    size_t charge = 0;  // of the device's memory
  };
  struct Physical {
    size_t bytes = 0;
    bool mapped = false;
    bool freed = false;
  };
  struct Mapping {
    size_t bytes = 0;
    uint64_t physical = 0;
  };

  std::optional<size_t> take_span(size_t span);
  void give_span(size_t begin, size_t span);
  void shrink_quarantine(size_t limit);
  size_t offset(const void* address) const;
  void* tagged(size_t offset) const;
  bool alive_locked(size_t begin, size_t bytes) const;

  const uint64_t tag_;
  const size_t hbm_;
  const bool poison_;
  char* base_ = nullptr;
  size_t extent_ = 0;
  mutable std::mutex mutex_;
  size_t used_ = 0;
  std::map<size_t, size_t> free_;   // spans by begin, joined
  std::map<size_t, Block> blocks_;  // by first byte
  std::map<size_t, Block> reservations_;
  std::map<size_t, Mapping> mappings_;
  std::map<uint64_t, Physical> physical_;
  uint64_t next_physical_ = 1;
  std::deque<Block> quarantine_;
  size_t quarantined_ = 0;
};

}  // namespace ascend_sim
