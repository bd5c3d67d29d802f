// Member: one rank's seat in its world: meetings inside kernels, messages between steps, cards at the start.
//
// Meetings are for kernels: every thread of a rank calls meet() in the same order on all ranks, and returns when all
// ranks have come. One counter serves all collectives, so that two kinds cannot be mixed up. Messages are for the step
// threads: the front publishes what is to run, followers run exactly that, and the front waits for all of them before
// the next one, so no rank reads what a later step writes. Cards are for the start: texts that all ranks show each
// other. abort() may come from any thread of any rank: every wait of every rank ends with its reason, and the world is
// done. The rest is for one thread per rank at a time, but meet().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ranks/region.h"
#include "ranks/world.h"

namespace reprise::ranks {

class Member {
 public:
  // The region is mapped already; `timeout`: of the answer to a message. Cards wait for the slowest start.
  static Result<std::shared_ptr<Member>> join(std::shared_ptr<Region> region, World world,
                                              std::chrono::milliseconds timeout = std::chrono::minutes(5));

  const World& world() const { return world_; }
  Region& region() const { return *region_; }
  // Whether every rank of this host has processors of its own.
  bool own_processors() const { return region_->control().processors >= world_.local_size; }

  // What a rank has done so far: collectives, and the time that it waited in them for later ones. Any thread.
  struct Standing {
    uint64_t collectives = 0;
    double waited_s = 0;
  };
  std::vector<Standing> standings() const;  // by rank

  // Kernels. `thread` is below kMaxThreads. Returns at once in a world that was aborted.
  static constexpr int kMaxThreads = 256;
  void meet(int thread) { meet(thread, {}); }
  // `part`: what this rank has written of the result; other hosts get it by this. The same from all threads.
  void meet(int thread, const Part& part);
  // Finds out how parts of results are written so that the other ranks have them soonest, by timing both ways for some
  // milliseconds. Called by all ranks together, while no kernel runs. Where ranks share processors or lie on several
  // hosts, parts are written the usual way.
  void choose_copies();
  // Whether parts are written past this processor's caches (ranks/past_caches.h).
  bool copies_past_caches() const { return past_caches_; }
  // The number of the meeting that this thread comes to next.
  uint64_t next_epoch(int thread) const { return met_[thread].value + 1; }

  // The front's. `staged`: the step's inputs, where they lie in what ranks share.
  Status publish(StepMessage message, std::span<const uint8_t> staged = {});
  Status await_followers();  // until all have done what was published last
  // The number of the message that was published, or taken, last.
  uint64_t message() const { return steps_; }
  // The front waits for the results of a message whose steps run on behind it: a follower that has no other one takes
  // an Await with its number, and waits for its own part, or sees it fail.
  void want(uint64_t message);
  void have(uint64_t message);  // it waits no longer
  // A follower's: waits for the next message, without end while the world lives. An Await is not to be answered.
  Result<StepMessage> next();
  void done();

  // All ranks' texts, by rank; everyone calls it the same number of times. At most Control::kCardBytes - 4 bytes.
  Result<std::vector<std::string>> show(std::string_view card);
  // Ok when all ranks have shown the same; else a line that names the first rank that differs, and both texts.
  Status agree(std::string_view what, std::string_view value);
  // The front's bytes, on all ranks; as long everywhere, and no longer than a card.
  Status spread(std::span<char> bytes);
  // Until `ready`, at most for the timeout; then the world ends because this rank "waited N s for" `what`.
  Status await(const std::function<bool()>& ready, const std::string& what);

  void abort(std::string_view reason);
  bool aborted() const { return region_->control().aborted.load(std::memory_order_acquire) != 0; }
  Status lost() const;  // DeviceLost with the reason, once aborted
  // The front's: its last message was to stop.
  bool ended_in_order() const;

 private:
  Member(std::shared_ptr<Region> region, World world, std::chrono::milliseconds timeout);
  double exchange_us(bool past_caches);
  template <typename Ready>
  Status wait(const Ready& ready, std::chrono::milliseconds timeout, const std::string& what);

  struct alignas(64) Count {
    uint64_t value = 0;
  };
  std::shared_ptr<Region> region_;
  World world_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Count[]> met_;  // per thread: meetings
  uint64_t steps_ = 0;            // messages published, or taken
  uint64_t awaited_ = 0;          // the last Await taken
  uint64_t cards_ = 0;
  int spins_;  // before giving way
  bool past_caches_ = false;
};

}  // namespace reprise::ranks
