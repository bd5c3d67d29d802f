#include "engine/local_world.h"

namespace reprise::engine {
namespace {

Status follow(const LocalWorld::Open& open, int descriptor, ranks::World world, std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(std::unique_ptr<ranks::Region> region, ranks::Region::open(descriptor));
  ASSIGN_OR_RETURN(auto member, ranks::Member::join(std::move(region), world, timeout));
  auto engine = open(member);
  if (!engine.is_ok()) {
    member->abort(fmt::format("rank {}: {}", world.rank, engine.status().message()));
    return engine.status();
  }
  return (*engine)->follow();
}

}  // namespace

Result<std::unique_ptr<LocalWorld>> LocalWorld::start(int size, Open open, std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(std::unique_ptr<ranks::Region> made, ranks::Region::create(size));
  const std::shared_ptr<ranks::Region> region = std::move(made);
  ASSIGN_OR_RETURN(auto member, ranks::Member::join(region, {0, size}, timeout));
  std::unique_ptr<LocalWorld> world(new LocalWorld);
  world->open_ = std::move(open);
  world->followers_ = std::vector<Follower>(static_cast<size_t>(size) - 1);
  for (int rank = 1; rank < size; ++rank) {
    Follower& f = world->followers_[static_cast<size_t>(rank) - 1];
    f.thread = std::thread([&f, w = world.get(), rank, size, timeout, descriptor = region->descriptor()] {
      f.end = follow(w->open_, descriptor, {rank, size}, timeout);
    });
  }
  auto front = world->open_(member);
  if (!front.is_ok()) {
    member->abort(fmt::format("rank 0: {}", front.status().message()));
    world->stop();
    return front.status();
  }
  world->front_ = std::move(*front);
  return world;
}

std::vector<Status> LocalWorld::stop() {
  front_.reset();
  std::vector<Status> ends;
  for (Follower& f : followers_) {
    if (f.thread.joinable()) f.thread.join();
    ends.push_back(f.end);
  }
  return ends;
}

}  // namespace reprise::engine
