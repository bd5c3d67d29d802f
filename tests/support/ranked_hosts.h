// Ranks on several hosts in one process: a region for each host, a thread for each rank and each link, and a wire in
// memory between them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ranks/link.h"
#include "ranks/member.h"
#include "support/memory_wire.h"

namespace reprise::testing_support {

class RankedHosts {
 public:
  // `sizes`: ranks of each host; ranks are numbered host after host.
  explicit RankedHosts(const std::vector<int>& sizes, std::chrono::milliseconds timeout = std::chrono::seconds(30))
      : timeout_(timeout) {
    for (const int n : sizes)
      leaders_.insert(leaders_.end(), static_cast<size_t>(n), static_cast<int>(leaders_.size()));
    const int size = static_cast<int>(leaders_.size());
    for (int rank = 0, host = 0; rank < size; ++rank) {
      const int leader = leaders_[static_cast<size_t>(rank)];
      if (leader == rank) regions_.push_back(*ranks::Region::create(size));
      worlds_.push_back({rank, size, rank - leader, sizes[static_cast<size_t>(host)]});
      members_.push_back(*ranks::Member::join(regions_.back(), worlds_.back(), timeout));
      if (rank + 1 < size && leaders_[static_cast<size_t>(rank) + 1] == rank + 1) ++host;
    }
    size_t region = 0;
    for (const ranks::World& world : worlds_)
      if (world.leader()) links_.emplace_back([this, world, region = region++] { link(world, *regions_[region]); });
  }
  ~RankedHosts() { stop(); }
  RankedHosts(const RankedHosts&) = delete;
  RankedHosts& operator=(const RankedHosts&) = delete;

  const std::shared_ptr<ranks::Member>& member(int rank) const { return members_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }
  // `body` on every rank, each in a thread.
  void run(const std::function<void(ranks::Member&)>& body) const {
    std::vector<std::thread> threads;
    for (const auto& m : members_) threads.emplace_back([&] { body(*m); });
    for (auto& t : threads) t.join();
  }
  // The links go on until what was said has gone out.
  void stop() {
    ended_ = true;
    for (auto& t : links_)
      if (t.joinable()) t.join();
  }

 private:
  void link(const ranks::World& world, ranks::Region& region) {
    MemoryWire::be(world.rank);
    ranks::Link link(region, world, leaders_, MemoryWire::table(), timeout_);
    while (!ended_)
      if (!link.turn()) std::this_thread::yield();
    link.flush(std::chrono::seconds(1));
  }

  MemoryWire wire_;
  std::chrono::milliseconds timeout_;
  std::vector<int32_t> leaders_;
  std::vector<std::shared_ptr<ranks::Region>> regions_;
  std::vector<ranks::World> worlds_;
  std::vector<std::shared_ptr<ranks::Member>> members_;
  std::atomic<bool> ended_{false};
  std::vector<std::thread> links_;
};

}  // namespace reprise::testing_support
