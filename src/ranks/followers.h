// Followers: the processes of ranks 1 and up of a world, as its front sees them, and the thread that watches over them.
//
// start() forks them from a process that has one thread, so that they have read the same command line; each gets its
// share of the processors. The replicas of a server are a world each, with fronts in one process. adopt() takes
// those that a launcher started (ranks/launched.h), and what links this host to the others. A follower ends with its
// front, whichever way that ends. One that ends, or that does not come to a collective, is told to the whole world by
// an abort with its rank, process and signal. The front owns the object, which outlives its engine; one thread at a
// time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ranks/host_meeting.h"
#include "ranks/link_process.h"
#include "ranks/member.h"

namespace reprise::ranks {

// For a process that is not the front: signals, standard input and output are the front's.
void become_silent();

class Followers {
 public:
  // What a follower does with its seat in the world of a replica; its exit status, 0 when the front has ended in order.
  using Run = std::function<int(std::shared_ptr<Member>, int replica)>;

  // So many worlds of `size` ranks. `timeout`: how long a rank may stay away from a collective, or take for a step.
  static Result<std::vector<std::unique_ptr<Followers>>> start(int replicas, int size, const Run& run,
                                                               std::chrono::milliseconds timeout,
                                                               const Processors& processors);
  // `others`: the ranks of this host; `link`: null where they are all.
  static std::unique_ptr<Followers> adopt(std::shared_ptr<Member> front, std::vector<Neighbour> others,
                                          std::unique_ptr<LinkProcess> link, std::chrono::milliseconds timeout);
  ~Followers();
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  const std::shared_ptr<Member>& front() const { return front_; }
  std::vector<int> processes() const;  // those that it started, by rank, from rank 1

 private:
  struct Process {
    int id = 0;
    int descriptor = -1;  // pidfd
    bool ended = false;
  };
  struct Lifeline;  // a pipe that closes with the front, which followers wait for
  Followers() = default;
  Status fork_ranks(int replica, int replicas, int size, const Run& run, const Lifeline& lifeline,
                    const Processors& processors);
  void start_watching();
  void watch();
  void reap(size_t index, bool wait);
  void end_children();
  void look_for_hang();

  std::shared_ptr<Member> front_;
  std::vector<Process> processes_;
  std::vector<Neighbour> others_;
  std::unique_ptr<LinkProcess> link_;
  std::chrono::milliseconds timeout_{};
  std::string place_;  // "replica 1, " in messages
  std::shared_ptr<const Lifeline> lifeline_;
  std::atomic<bool> stop_{false};
  std::thread watcher_;
  uint64_t moves_ = 0;  // the watcher's: sum of all counts when it last saw one move ...
  std::chrono::steady_clock::time_point moved_{};
  bool reported_ = false;
};

}  // namespace reprise::ranks
