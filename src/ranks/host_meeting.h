// Ranks of one host that a launcher started find each other: the leader makes the region, and hands its descriptor to
// the others over an abstract Unix socket, which leaves no name behind. Both sides check that the other is the same
// user's. Called once by every rank, before it has a second thread; the sockets stay open, so that each side sees the
// other end.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ranks/processors.h"
#include "ranks/region.h"

namespace reprise::ranks {

// A rank at the other end of a socket. It says goodbye before it closes it in order.
class Neighbour {
 public:
  Neighbour(int rank, int process, int socket) : rank_(rank), process_(process), socket_(socket) {}
  Neighbour(Neighbour&& other) noexcept;
  Neighbour& operator=(Neighbour&&) = delete;
  ~Neighbour();

  int rank() const { return rank_; }
  int process() const { return process_; }
  int socket() const { return socket_; }
  void say_goodbye() const;
  // Waits until the other end says goodbye or is gone: whether it said so.
  bool wait_for_goodbye() const;

 private:
  int rank_, process_, socket_;
};

struct HostRanks {
  std::shared_ptr<Region> region;
  int leader = 0;                 // its rank in the world
  std::vector<Neighbour> others;  // the leader's: all others of the host; of another rank: the leader
};

// `job` is the same for all ranks of the host.
Result<HostRanks> meet_on_host(const World& world, const std::string& job, std::chrono::milliseconds timeout);

// The calling thread, and those that it starts from now on, keep to processors of their own, where the launcher left
// them all to every rank and there are enough.
void keep_to_share(const World& world, const Region& region, const Processors& processors);

}  // namespace reprise::ranks
