#include "ascend/runtime/order.h"

#include <algorithm>
#include <cstdio>

namespace ascend_sim {
namespace {

// Accesses kept for one lane. Older ones are forgotten, which can only hide a race.
constexpr size_t kRemembered = 8192;

}  // namespace

void Order::join(const Order& other) {
  for (const auto& [lane, count] : other.seen) {
    uint64_t& own = seen[lane];
    own = std::max(own, count);
  }
}

bool Order::knows(uint64_t lane, uint64_t count) const {
  const auto it = seen.find(lane);
  return it != seen.end() && it->second >= count;
}

std::string Accesses::note(Order& order, uint64_t lane, const void* address, size_t bytes, bool written,
                           const std::string& name) {
  if (bytes == 0) return "";
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + bytes;
  std::string found;
  for (const auto& [other, accesses] : lanes_) {
    if (other == lane) continue;
    for (const Access& access : accesses) {
      const bool overlaps = access.begin < end && begin < access.end;
      if (!overlaps || !(written || access.written) || order.knows(other, access.count)) continue;
      char text[64];
      std::snprintf(text, sizeof text, "%p", address);
      found = name + (written ? " writes " : " reads ") + text + " while nothing orders it after " + access.name +
              (access.written ? ", which writes it" : ", which reads it");
    }
  }
  auto& own = lanes_[lane];
  own.push_back({++order.seen[lane], begin, end, written, name});
  if (own.size() > kRemembered) own.pop_front();
  return found;
}

void Accesses::hand_over(uint64_t from, Order& order, uint64_t lane) {
  auto it = lanes_.find(from);
  if (it == lanes_.end()) return;
  const uint64_t count = ++order.seen[lane];
  auto& own = lanes_[lane];
  for (Access& access : it->second) {
    access.count = count;
    own.push_back(std::move(access));
  }
  while (own.size() > kRemembered) own.pop_front();
  lanes_.erase(from);
  order.seen.erase(from);
}

void Accesses::forget(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (auto& [lane, accesses] : lanes_) {
    std::erase_if(accesses, [&](const Access& access) { return access.begin < begin + bytes && begin < access.end; });
  }
}

void Accesses::prune(const std::vector<const Order*>& known) {
  for (auto& [lane, accesses] : lanes_) {
    const auto over = [&, lane = lane](uint64_t count) {
      return std::all_of(known.begin(), known.end(), [&](const Order* order) { return order->knows(lane, count); });
    };
    while (!accesses.empty() && over(accesses.front().count)) accesses.pop_front();
  }
}

}  // namespace ascend_sim
