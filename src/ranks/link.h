// Link: keeps what the ranks of two or more hosts share equal, message by message.
//
// Ranks of a host share a region (ranks/region.h). A link has one for its host, in which it stands in for the ranks of
// the other hosts: what a rank here writes into its line, its card or a collective's result goes to the other hosts,
// and what comes from there is written here, the line last. So Member needs to know of no host. An epoch of a
// collective travels as one message of a host with the parts of all its ranks, which is why none is lost between sizes
// and bytes. An abort travels both ways. A host that is silent for the timeout ends the world. One thread calls
// everything.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "ranks/region.h"
#include "ranks/wire.h"

namespace reprise::ranks {

class Link {
 public:
  enum class Kind : uint32_t { Hello = 1, Step, Parts, Lines, Card, Abort, Beat };
  // In front of every message.
  struct Frame {
    static constexpr uint32_t kMagic = 0x4c525052;
    uint32_t magic = kMagic;
    Kind kind = Kind::Beat;
    int32_t rank = 0;
    uint32_t protocol = Control::kProtocol;
    uint64_t number = 0;  // of the step, the epoch or the card
    uint64_t bytes = 0;   // behind it
  };

  // `leaders`: of each rank of the world, the leader of its host. All outlive the link.
  Link(Region& region, const World& world, std::vector<int32_t> leaders, const reprise_wire& wire,
       std::chrono::milliseconds timeout);

  // What can be done now: true when something was. Errors have become an abort.
  bool turn();
  // Waits until what was said has gone out, at most so long.
  void flush(std::chrono::milliseconds time);
  // Ends the world from here; the others hear of it.
  void abort(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;
  struct LineState;
  struct Peer {
    int leader = 0;
    std::vector<int> ranks;
    std::string host;  // as it calls itself
    std::vector<uint8_t> message;
    void* receiving = nullptr;
    Clock::time_point heard{};
  };
  struct Outgoing {
    std::shared_ptr<const std::vector<uint8_t>> bytes;
    void* sending = nullptr;
  };

  Control& control() const { return region_.control(); }
  bool is_local(int rank) const { return leaders_[static_cast<size_t>(rank)] == leader_; }
  void say(Kind kind, int rank, uint64_t number, const std::vector<std::pair<const void*, size_t>>& parts = {});

  bool send_step();
  bool send_parts();
  bool send_lines();
  bool send_cards();
  bool send_abort();
  void beat();
  bool finish_sends();

  bool listen(Peer& peer);
  Status take(Peer& peer);
  Status take_step(const Peer& peer, const Frame& frame, const uint8_t* data, size_t bytes);
  Status take_parts(const Peer& peer, const Frame& frame, const uint8_t* data, size_t bytes);
  Status take_lines(const Peer& peer, const uint8_t* data, size_t bytes);
  Status take_card(const Peer& peer, const Frame& frame, const uint8_t* data, size_t bytes);

  Region& region_;
  World world_;
  std::vector<int32_t> leaders_;  // by rank
  int leader_;
  const reprise_wire& wire_;
  std::chrono::milliseconds timeout_;
  std::vector<int> local_;  // ranks of this host
  std::vector<Peer> peers_;
  std::deque<Outgoing> outgoing_;
  uint64_t steps_ = 0, epochs_ = 0;                   // sent so far
  std::array<uint64_t, kMaxRanks> done_{}, cards_{};  // by rank of this host: sent so far
  bool told_ = false;                                 // the others know of the end
  bool broken_ = false;                               // the wire has failed
  Clock::time_point beat_{};
};

}  // namespace reprise::ranks
