// An engine over several ranks in one process: every follower is a thread with an engine of its own, and they meet in
// memory that each of them has mapped for itself, as processes do.
#pragma once

#include <thread>

#include "support/tiny_models.h"

namespace reprise::testing_support {

class RankedEngine {
 public:
  using Open = std::function<Result<std::unique_ptr<engine::Engine>>(std::shared_ptr<ranks::Member>)>;

  // Every rank opens its engine by `open`. The first error of any rank.
  static Result<std::unique_ptr<RankedEngine>> start(int size, const Open& open,
                                                     std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    ASSIGN_OR_RETURN(std::unique_ptr<ranks::Region> made, ranks::Region::create(size));
    std::unique_ptr<RankedEngine> world(new RankedEngine);
    world->followers_.resize(static_cast<size_t>(size) - 1);
    std::shared_ptr<ranks::Region> region = std::move(made);
    for (int rank = 1; rank < size; ++rank) {
      Follower& f = world->followers_[static_cast<size_t>(rank) - 1];
      f.thread = std::thread([&f, &open, rank, size, timeout, descriptor = region->descriptor()] {
        f.end = run_follower(open, descriptor, {rank, size}, timeout);
      });
    }
    auto front = [&]() -> Result<std::unique_ptr<engine::Engine>> {
      ASSIGN_OR_RETURN(auto member, ranks::Member::join(region, {0, size}, timeout));
      world->member_ = member;
      return open(member);
    }();
    if (front.is_ok()) {
      world->front_ = std::move(*front);
      return world;
    }
    world->stop();
    return front.status();
  }
  ~RankedEngine() { stop(); }

  engine::Engine& front() { return *front_; }
  ranks::Member& member() { return *member_; }
  // Ends the front, then the followers; how each of them ended.
  std::vector<Status> stop() {
    front_.reset();
    std::vector<Status> ends;
    for (Follower& f : followers_) {
      if (f.thread.joinable()) f.thread.join();
      ends.push_back(f.end);
    }
    return ends;
  }

 private:
  struct Follower {
    std::thread thread;
    Status end;
  };
  RankedEngine() = default;

  static Status run_follower(const Open& open, int descriptor, ranks::World world, std::chrono::milliseconds timeout) {
    ASSIGN_OR_RETURN(std::unique_ptr<ranks::Region> region, ranks::Region::open(descriptor));
    ASSIGN_OR_RETURN(auto member, ranks::Member::join(std::move(region), world, timeout));
    ASSIGN_OR_RETURN(auto engine, open(member));
    return engine->follow();
  }

  std::shared_ptr<ranks::Member> member_;
  std::unique_ptr<engine::Engine> front_;
  std::vector<Follower> followers_;
};

// The tiny model at `path` over `size` ranks.
inline Result<std::unique_ptr<RankedEngine>> open_ranked(const std::string& path, const EngineSetup& setup, int size) {
  return RankedEngine::start(size, [&](std::shared_ptr<ranks::Member> member) {
    EngineSetup mine = setup;
    mine.member = std::move(member);
    return open_engine(path, mine);
  });
}

}  // namespace reprise::testing_support
