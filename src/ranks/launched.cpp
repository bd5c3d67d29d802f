#include "ranks/launched.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "base/log.h"

namespace reprise::ranks {
namespace {

// For the other ranks of this host to see why the world ends.
constexpr std::chrono::milliseconds kLastLook{300};

[[noreturn]] void end_lost(Member& member, const std::string& why) {
  if (!member.aborted()) log::error("rank {}: {}", member.world().rank, why);
  member.abort(why);
  std::this_thread::sleep_for(kLastLook);
  ::_exit(1);
}

// Ends this process when its leader ends without a word. The thread outlives a hanging one.
void hold_to_leader(const std::shared_ptr<Member>& member, const Neighbour& leader) {
  std::thread([member, &leader] {
    if (leader.wait_for_goodbye()) return;
    end_lost(*member, fmt::format("rank {} (process {}) ended", leader.rank(), leader.process()));
  }).detach();
}

// A leader of a host that is not the front's hears of the others through its link alone.
void hold_to_link(const std::shared_ptr<Member>& member, const LinkProcess& link,
                  const std::shared_ptr<std::atomic<bool>>& parting) {
  std::thread([member, parting, descriptor = link.descriptor(), process = link.process()] {
    pollfd ended{descriptor, POLLIN, 0};
    while (::poll(&ended, 1, -1) <= 0) {
    }
    if (*parting) return;
    end_lost(*member, fmt::format("the link to the other hosts (process {}) ended", process));
  }).detach();
}

[[noreturn]] void follow(const Followers::Run& run, const std::shared_ptr<Member>& member, const HostRanks& host,
                         std::unique_ptr<LinkProcess> link) {
  become_silent();
  if (!member->world().leader()) hold_to_leader(member, host.others[0]);
  const auto parting = std::make_shared<std::atomic<bool>>(false);
  if (link && member->world().leader()) hold_to_link(member, *link, parting);
  const int status = run(member, 0);
  *parting = true;
  for (const Neighbour& n : host.others) n.say_goodbye();
  std::fflush(stderr);
  if (link && status == 0) link->end_in_order();
  link.reset();
  ::_exit(status);
}

}  // namespace

Result<std::unique_ptr<Followers>> join_launched_world(const LaunchedWorld& launched, const Followers::Run& run,
                                                       std::chrono::milliseconds timeout,
                                                       const Processors& processors) {
  const World& world = launched.world;
  ASSIGN_OR_RETURN(HostRanks host, meet_on_host(world, launched.job, timeout));
  std::unique_ptr<LinkProcess> link;
  if (!world.one_host()) {
    ASSIGN_OR_RETURN(link, LinkProcess::start(host.region, world, host.leader, launched.hosts, timeout));
  }
  keep_to_share(world, *host.region, processors);
  ASSIGN_OR_RETURN(std::shared_ptr<Member> member, Member::join(host.region, world, timeout));
  if (!world.front()) follow(run, member, host, std::move(link));
  return Followers::adopt(std::move(member), std::move(host.others), std::move(link), timeout);
}

}  // namespace reprise::ranks
