#include "ascend/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "ascend/runtime/fill.h"

namespace ascend_sim {
namespace {

// Bit 54 makes the address one that no x86-64 or AArch64 host can follow (AArch64 ignores the eight bits above); the
// rest looks like the device's own range.
constexpr uint64_t kTag = uint64_t{1} << 54;
constexpr int kDeviceShift = 40;
constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRedZone = 4096;
// Above it are caches and workspaces of attention, whose filling would take longer than the test.
constexpr size_t kPoisonLimit = size_t{8} << 20;
constexpr size_t kQuarantine = size_t{256} << 20;

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

// Requests up to 1 MiB take normal pages, larger ones huge pages.
size_t charge_of(size_t bytes) { return round_up(bytes, bytes <= (size_t{1} << 20) ? kPage : kHugePage); }

}  // namespace

bool is_device_address(const void* address) { return (reinterpret_cast<uint64_t>(address) & kTag) != 0; }

int device_of_address(const void* address) {
  if (!is_device_address(address)) return -1;
  return static_cast<int>((reinterpret_cast<uint64_t>(address) & ~kTag) >> kDeviceShift) - 1;
}

Memory::Memory(int device, size_t hbm_bytes, bool poison)
    : tag_(kTag | (static_cast<uint64_t>(device) + 1) << kDeviceShift), hbm_(hbm_bytes), poison_(poison) {
  // Twice the memory, so that fragments and the quarantine never stand in the way of what the device could hold.
  const size_t wanted = std::min(round_up(hbm_bytes, kPage) * 2 + (size_t{4} << 30), size_t{1} << kDeviceShift);
  void* range = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return;
  ::madvise(range, wanted, MADV_DONTDUMP);
  base_ = static_cast<char*>(range);
  extent_ = wanted;
  free_[0] = extent_;
}

Memory::~Memory() {
  if (base_ != nullptr) ::munmap(base_, extent_);
}

size_t Memory::offset(const void* address) const { return reinterpret_cast<uint64_t>(address) - tag_; }
void* Memory::tagged(size_t offset) const { return reinterpret_cast<void*>(tag_ + offset); }

std::optional<size_t> Memory::take_span(size_t span) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < span) continue;
    const size_t begin = it->first;
    const size_t rest = it->second - span;
    free_.erase(it);
    if (rest > 0) free_[begin + span] = rest;
    return begin;
  }
  return std::nullopt;
}

void Memory::give_span(size_t begin, size_t span) {
  ::madvise(base_ + begin, span, MADV_DONTNEED);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + span == next->first) {
    span += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += span;
      return;
    }
  }
  free_[begin] = span;
}

void Memory::shrink_quarantine(size_t limit) {
  while (quarantined_ > limit && !quarantine_.empty()) {
    const Block block = quarantine_.front();
    quarantine_.pop_front();
    quarantined_ -= block.span;
    give_span(block.begin, block.span);
  }
}

void* Memory::allocate(size_t bytes, size_t extra) {
  if (bytes > hbm_) return nullptr;
  std::lock_guard lock(mutex_);
  const size_t rounded = round_up(bytes, 32) + extra;
  const size_t charge = charge_of(rounded);
  if (used_ + charge > hbm_) return nullptr;
  const size_t span = round_up(rounded, kPage) + 2 * kRedZone;
  std::optional<size_t> begin = take_span(span);
  if (!begin) {
    shrink_quarantine(0);
    begin = take_span(span);
  }
  if (!begin) return nullptr;
  used_ += charge;
  const size_t first = *begin + kRedZone;
  // What lies behind the asked bytes belongs to the allocator, and touching it is a fault.
  blocks_[first] = {*begin, span, bytes, charge};
  if (poison_ && bytes <= kPoisonLimit) std::memset(base_ + first, 0xFF, bytes);
  return tagged(first);
}

size_t Memory::release(void* address) {
  std::lock_guard lock(mutex_);
  auto it = blocks_.find(offset(address));
  if (it == blocks_.end()) return 0;
  const Block block = it->second;
  if (poison_ && block.bytes <= kPoisonLimit) std::memset(base_ + it->first, 0xFF, block.bytes);
  blocks_.erase(it);
  used_ -= block.charge;
  quarantine_.push_back(block);
  quarantined_ += block.span;
  shrink_quarantine(kQuarantine);
  return block.bytes;
}

void* Memory::reserve(size_t bytes) {
  std::lock_guard lock(mutex_);
  const size_t span = round_up(bytes, kHugePage) + 2 * kRedZone;
  const std::optional<size_t> begin = take_span(span);
  if (!begin) return nullptr;
  reservations_[*begin + kRedZone] = {*begin, span, bytes, 0};
  return tagged(*begin + kRedZone);
}

bool Memory::unreserve(void* address) {
  std::lock_guard lock(mutex_);
  auto it = reservations_.find(offset(address));
  if (it == reservations_.end()) return false;
  const auto mapped = mappings_.lower_bound(it->first);
  if (mapped != mappings_.end() && mapped->first < it->first + it->second.bytes) return false;
  give_span(it->second.begin, it->second.span);
  reservations_.erase(it);
  return true;
}

uint64_t Memory::allocate_physical(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > hbm_ || used_ + bytes > hbm_) return 0;
  used_ += bytes;
  physical_[next_physical_] = {bytes, false, false};
  return next_physical_++;
}

bool Memory::release_physical(uint64_t handle) {
  std::lock_guard lock(mutex_);
  auto it = physical_.find(handle);
  if (it == physical_.end() || it->second.freed) return false;
  it->second.freed = true;
  if (!it->second.mapped) {
    used_ -= it->second.bytes;
    physical_.erase(it);
  }
  return true;
}

bool Memory::map(void* address, size_t bytes, uint64_t handle) {
  std::lock_guard lock(mutex_);
  const size_t begin = offset(address);
  auto range = reservations_.upper_bound(begin);
  auto block = physical_.find(handle);
  if (range == reservations_.begin() || block == physical_.end()) return false;
  --range;
  const bool inside = begin + bytes <= range->first + range->second.bytes;
  if (!inside || block->second.mapped || block->second.freed || block->second.bytes != bytes) return false;
  const auto next = mappings_.lower_bound(begin);
  if (next != mappings_.end() && next->first < begin + bytes) return false;
  if (next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin) return false;
  block->second.mapped = true;
  mappings_[begin] = {bytes, handle};
  if (poison_ && bytes <= kPoisonLimit) std::memset(base_ + begin, 0xFF, bytes);
  return true;
}

bool Memory::unmap(void* address) {
  std::lock_guard lock(mutex_);
  auto it = mappings_.find(offset(address));
  if (it == mappings_.end()) return false;
  Physical& block = physical_[it->second.physical];
  block.mapped = false;
  ::madvise(base_ + it->first, it->second.bytes / kPage * kPage, MADV_DONTNEED);
  if (block.freed) {
    used_ -= block.bytes;
    physical_.erase(it->second.physical);
  }
  mappings_.erase(it);
  return true;
}

bool Memory::alive_locked(size_t begin, size_t bytes) const {
  if (begin >= extent_ || bytes > extent_) return false;
  const size_t end = begin + bytes;
  auto block = blocks_.upper_bound(begin);
  if (block != blocks_.begin()) {
    --block;
    if (begin < block->first + block->second.bytes) return end <= block->first + block->second.bytes;
  }
  auto mapping = mappings_.upper_bound(begin);
  if (mapping == mappings_.begin()) return false;
  --mapping;
  size_t reached = mapping->first + mapping->second.bytes;
  if (begin >= reached) return false;
  // Neighbouring mappings are one range.
  for (++mapping; reached < end && mapping != mappings_.end() && mapping->first == reached; ++mapping) {
    reached += mapping->second.bytes;
  }
  return end <= reached;
}

bool Memory::alive(const void* address, size_t bytes) const {
  std::lock_guard lock(mutex_);
  return alive_locked(offset(address), bytes);
}

void* Memory::host(const void* address, size_t bytes) const {
  std::lock_guard lock(mutex_);
  return alive_locked(offset(address), bytes) ? base_ + offset(address) : nullptr;
}

void Memory::leave(size_t bytes) {
  std::lock_guard lock(mutex_);
  used_ = hbm_ - std::min(bytes, hbm_);
}

size_t Memory::available() const {
  std::lock_guard lock(mutex_);
  return hbm_ - used_;
}

void fill_bytes(void* to, int value, size_t bytes, bool device) {
  auto* begin = static_cast<char*>(to);
  const auto address = reinterpret_cast<uintptr_t>(to);
  const size_t head = round_up(address, kPage) - address;
  if (!device || value != 0 || bytes < kHugePage) {
    std::memset(to, value, bytes);
    return;
  }
  const size_t pages = (bytes - head) / kPage * kPage;
  std::memset(begin, 0, head);
  // Private pages without a file come back as zeros.
  if (::madvise(begin + head, pages, MADV_DONTNEED) != 0) std::memset(begin + head, 0, pages);
  std::memset(begin + head + pages, 0, bytes - head - pages);
}

}  // namespace ascend_sim
