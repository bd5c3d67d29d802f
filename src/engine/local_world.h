// LocalWorld: all ranks of a world in one process, for checks: every follower is a thread with an engine of its own,
// and they meet in memory that each has mapped for itself, as processes do (ranks/followers.h). The code that started
// it owns it, and drives the front's engine from one thread.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace reprise::engine {

class LocalWorld {
 public:
  // Opens the engine of a rank; called on all of them at once.
  using Open = std::function<Result<std::unique_ptr<Engine>>(std::shared_ptr<ranks::Member>)>;

  // The front's error, when one of the ranks does not start.
  static Result<std::unique_ptr<LocalWorld>> start(int size, Open open,
                                                   std::chrono::milliseconds timeout = std::chrono::seconds(60));
  // With seats that are taken already, by rank.
  static Result<std::unique_ptr<LocalWorld>> start(std::vector<std::shared_ptr<ranks::Member>> seats, Open open);
  ~LocalWorld() { stop(); }
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  Engine& front() { return *front_; }
  // A rank's engine, to be looked at while no step runs.
  Engine& at(int rank) { return rank == 0 ? *front_ : *followers_[static_cast<size_t>(rank) - 1].opened.get(); }
  int size() const { return static_cast<int>(followers_.size()) + 1; }
  // Ends the front, then the followers; how each of them ended.
  std::vector<Status> stop();

 private:
  struct Follower {
    std::thread thread;
    std::shared_future<Engine*> opened;
    Status end;
  };
  LocalWorld() = default;

  Open open_;
  std::unique_ptr<Engine> front_;
  std::vector<Follower> followers_;
};

}  // namespace reprise::engine
