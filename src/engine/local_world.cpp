#include "engine/local_world.h"

namespace reprise::engine {
namespace {

Status follow(const LocalWorld::Open& open, const std::shared_ptr<ranks::Member>& seat, std::promise<Engine*>& opened) {
  auto engine = open(seat);
  opened.set_value(engine.is_ok() ? engine->get() : nullptr);
  if (!engine.is_ok()) {
    seat->abort(fmt::format("rank {}: {}", seat->world().rank, engine.status().message()));
    return engine.status();
  }
  return (*engine)->follow();
}

}  // namespace

Result<std::unique_ptr<LocalWorld>> LocalWorld::start(int size, Open open, std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ranks::Region> made, ranks::Region::create(size));
  std::vector<std::shared_ptr<ranks::Member>> seats;
  for (int rank = 0; rank < size; ++rank) {
    ASSIGN_OR_RETURN(std::unique_ptr<ranks::Region> region, ranks::Region::open(made->descriptor()));
    ASSIGN_OR_RETURN(auto seat, ranks::Member::join(std::move(region), {rank, size}, timeout));
    seats.push_back(std::move(seat));
  }
  return start(std::move(seats), std::move(open));
}

Result<std::unique_ptr<LocalWorld>> LocalWorld::start(std::vector<std::shared_ptr<ranks::Member>> seats, Open open) {
  std::unique_ptr<LocalWorld> world(new LocalWorld);
  world->open_ = std::move(open);
  world->followers_ = std::vector<Follower>(seats.size() - 1);
  for (size_t rank = 1; rank < seats.size(); ++rank) {
    Follower& f = world->followers_[rank - 1];
    std::promise<Engine*> opened;
    f.opened = opened.get_future().share();
    f.thread = std::thread([&f, w = world.get(), seat = seats[rank], opened = std::move(opened)]() mutable {
      f.end = follow(w->open_, seat, opened);
    });
  }
  const std::shared_ptr<ranks::Member>& member = seats[0];
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
