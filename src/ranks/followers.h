// Followers: the processes of ranks 1 and up of a world on this host, and the thread that watches over them.
//
// start() forks them from a process that has one thread, so that they have read the same command line; each gets its
// share of the allowed processors. A follower ends with its front, whichever way that ends. One that ends, or that does
// not come to a collective, is told to the whole world by an abort with its rank, process and signal. The front owns
// the object, which outlives its engine; one thread at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ranks/member.h"

namespace reprise::ranks {

class Followers {
 public:
  // What a follower does with its seat; its exit status, 0 when the front has ended in order.
  using Run = std::function<int(std::shared_ptr<Member>)>;

  // `timeout`: how long a rank may stay away from a collective, or take for a step.
  static Result<std::unique_ptr<Followers>> start(int size, const Run& run, std::chrono::milliseconds timeout);
  ~Followers();
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

  const std::shared_ptr<Member>& front() const { return front_; }
  std::vector<int> processes() const;  // by rank, from rank 1

 private:
  struct Process {
    int id = 0;
    int descriptor = -1;  // pidfd
    bool ended = false;
  };
  Followers() = default;
  void watch();
  void reap(size_t index, bool wait);
  void look_for_hang();

  std::shared_ptr<Member> front_;
  std::vector<Process> processes_;
  std::chrono::milliseconds timeout_{};
  int lifeline_ = -1;  // closed with the front, which followers wait for
  std::atomic<bool> stop_{false};
  std::thread watcher_;
  uint64_t moves_ = 0;  // the watcher's: sum of all counts when it last saw one move ...
  std::chrono::steady_clock::time_point moved_{};
  bool reported_ = false;
};

}  // namespace reprise::ranks
