// Finds work that touches the same memory with nothing to order it, also where it happened to run in order. Every lane
// counts its accesses and carries what it knows of the other lanes' counts; records, waits, values, synchronisations
// and the host's calls hand that knowledge on. Switched on by ASCEND_SIM_RACES. Guarded by the World's mutex.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace ascend_sim {

// How many accesses of each lane come before a point. The host is lane 0: all its threads are one, as how they wait for
// each other cannot be seen here.
struct Order {
  std::map<uint64_t, uint64_t> seen;

  void join(const Order& other);
  bool knows(uint64_t lane, uint64_t count) const;
};
constexpr uint64_t kHostLane = 0;

class Accesses {
 public:
  // Notes an access of a lane and counts it in the lane's order. Empty, or what it races with.
  std::string note(Order& order, uint64_t lane, const void* address, size_t bytes, bool written,
                   const std::string& name);
  // What the lane did counts as the next access of another: a replay is over.
  void hand_over(uint64_t from, Order& order, uint64_t lane);
  // The block is freed; its address may mean something else later.
  void forget(const void* address, size_t bytes);
  // What all of these know to be over: the host, for what it queues from now on, and the tasks in front of the queues.
  void prune(const std::vector<const Order*>& known);
  void clear() { lanes_.clear(); }

 private:
  struct Access {
    uint64_t count = 0;
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool written = false;
    std::string name;
  };
  std::map<uint64_t, std::deque<Access>> lanes_;
};

}  // namespace ascend_sim
