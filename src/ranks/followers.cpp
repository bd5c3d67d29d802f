#include "ranks/followers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/log.h"

namespace reprise::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReport{10};
// For followers to end by themselves: in order, and when the world is lost.
constexpr std::chrono::seconds kLastMoments{5}, kLostMoments{1};

// Ends this process when the front's end of the pipe is closed.
void hold_lifeline(int descriptor, int rank) {
  std::thread([descriptor, rank] {
    char byte = 0;
    while (::read(descriptor, &byte, 1) < 0 && errno == EINTR) {
    }
    log::error("rank {}: the front has ended", rank);
    ::_exit(1);
  }).detach();
}

[[noreturn]] void be_follower(const Followers::Run& run, std::shared_ptr<Region> region, World world, int replica,
                              std::chrono::milliseconds timeout, int lifeline) {
  become_silent();
  hold_lifeline(lifeline, world.rank);
  auto member = Member::join(std::move(region), world, timeout);
  const int status = member.is_ok() ? run(std::move(*member), replica) : 1;
  std::fflush(stderr);
  ::_exit(status);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("status {}", WEXITSTATUS(status));
}

}  // namespace

// The front decides what a signal means; it tells, or takes its followers with it.
void become_silent() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  if (const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
    ::dup2(null, STDIN_FILENO);
    ::dup2(null, STDOUT_FILENO);
  }
}

struct Followers::Lifeline {
  Lifeline(int read_end, int write_end) : read_end(read_end), write_end(write_end) {}
  ~Lifeline() {
    if (write_end >= 0) ::close(write_end);
  }
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  int read_end, write_end;
};

Result<std::vector<std::unique_ptr<Followers>>> Followers::start(int replicas, int size, const Run& run,
                                                                 std::chrono::milliseconds timeout,
                                                                 const Processors& processors) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return error(Code::OutOfMemory, "followers could not be started: {}", std::strerror(errno));
  const auto lifeline = std::make_shared<const Lifeline>(ends[0], ends[1]);
  std::vector<std::unique_ptr<Followers>> worlds;
  Status forked;
  std::fflush(nullptr);  // or each of them would write what is still to be written
  for (int replica = 0; replica < replicas && forked.is_ok(); ++replica) {
    Followers& world = *worlds.emplace_back(new Followers);
    world.timeout_ = timeout;
    world.lifeline_ = lifeline;
    if (replicas > 1) world.place_ = fmt::format("replica {}, ", replica);
    forked = world.fork_ranks(replica, replicas, size, run, *lifeline, processors);
  }
  ::close(ends[0]);
  RETURN_IF_ERROR(forked);
  // Fronts of several replicas share out what is left themselves.
  if (replicas == 1) (void)processors.take(0, size);
  for (const auto& world : worlds) world->start_watching();
  return worlds;
}

Status Followers::fork_ranks(int replica, int replicas, int size, const Run& run, const Lifeline& lifeline,
                             const Processors& processors) {
  ASSIGN_OR_RETURN(std::unique_ptr<Region> made, Region::create(size));
  const std::shared_ptr<Region> region = std::move(made);
  region->control().processors /= replicas;
  ASSIGN_OR_RETURN(front_, Member::join(region, {0, size}, timeout_));
  for (int rank = 1; rank < size; ++rank) {
    const pid_t id = ::fork();
    if (id == 0) {
      ::close(lifeline.write_end);
      (void)processors.take(replica * size + rank, replicas * size);  // too few are shared
      be_follower(run, region, {rank, size}, replica, timeout_, lifeline.read_end);
    }
    if (id < 0) {
      const int why = errno;
      front_->abort("not all ranks could be started");
      return error(Code::OutOfMemory, "rank {} could not be started: {}", rank, std::strerror(why));
    }
    processes_.push_back({id, static_cast<int>(::syscall(SYS_pidfd_open, id, 0)), false});
  }
  return Status::ok();
}

std::unique_ptr<Followers> Followers::adopt(std::shared_ptr<Member> front, std::vector<Neighbour> others,
                                            std::unique_ptr<LinkProcess> link, std::chrono::milliseconds timeout) {
  std::unique_ptr<Followers> world(new Followers);
  world->timeout_ = timeout;
  world->front_ = std::move(front);
  world->others_ = std::move(others);
  world->link_ = std::move(link);
  world->start_watching();
  return world;
}

// Signals are for threads of the caller.
void Followers::start_watching() {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  watcher_ = std::thread([this] { watch(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::vector<int> Followers::processes() const {
  std::vector<int> out;
  for (const Process& p : processes_) out.push_back(p.id);
  return out;
}

void Followers::reap(size_t index, bool wait) {
  Process& p = processes_[index];
  int status = 0;
  if (p.ended || ::waitpid(p.id, &status, wait ? 0 : WNOHANG) != p.id) return;
  p.ended = true;
  if (status != 0)
    front_->abort(fmt::format("{}rank {} (process {}) ended: {}", place_, index + 1, p.id, how_it_ended(status)));
}

// A step is under way, and no rank moves.
void Followers::look_for_hang() {
  const Control& c = front_->region().control();
  const int size = front_->world().size;
  const uint64_t step = c.step.load(std::memory_order_acquire);
  const uint64_t given = c.given.load(std::memory_order_acquire);
  uint64_t moves = step + given;
  bool open = c.wanted.load(std::memory_order_acquire) > given;
  // The one that is furthest behind: collectives come first, then the end of the step, which the front only waits for.
  struct Progress {
    uint64_t epoch = 0, done = 0;
    auto operator<=>(const Progress&) const = default;
  };
  std::vector<Progress> at;
  for (int r = 0; r < size; ++r) {
    const uint64_t epoch = c.line[r].epoch.load(std::memory_order_acquire),
                   done = r == 0 ? step : c.line[r].done.load(std::memory_order_acquire);
    moves += epoch + done;
    if (done < step) open = true;
    at.push_back({epoch, done});
  }
  const auto last = std::min_element(at.begin(), at.end()) - at.begin();
  const auto now = Clock::now();
  if (!open || moves != moves_ || moved_ == Clock::time_point{}) {
    moves_ = moves;
    moved_ = now;
    reported_ = false;
    return;
  }
  const auto still = std::chrono::duration_cast<std::chrono::seconds>(now - moved_);
  if (still < kReport && still < timeout_) return;
  const std::string what = fmt::format(
      "{}no rank has moved for {} s: rank {} is the last, at collective {}; rank {} waits at {}", place_, still.count(),
      last, c.line[last].epoch.load(), last == 0 ? 1 : 0, c.line[last == 0 ? 1 : 0].epoch.load());
  if (!reported_) log::warning("{}", what);
  reported_ = true;
  if (still >= timeout_) front_->abort(what + " (`dist_timeout`)");
}

void Followers::watch() {
  std::vector<pollfd> waits;
  for (const Process& p : processes_) waits.push_back({p.descriptor, POLLIN, 0});
  for (const Neighbour& n : others_) waits.push_back({n.socket(), POLLIN, 0});
  if (link_) waits.push_back({link_->descriptor(), POLLIN, 0});
  const auto others = waits.begin() + static_cast<ptrdiff_t>(processes_.size());
  constexpr int kTickMs = 50;
  while (!stop_) {
    (void)::poll(waits.data(), waits.size(), kTickMs);
    for (size_t i = 0; i < processes_.size(); ++i) {
      reap(i, false);
      if (processes_[i].ended) waits[i].fd = -1;
    }
    auto wait = others;
    for (const Neighbour& n : others_) {
      if (wait->fd >= 0 && wait->revents) {
        if (!n.wait_for_goodbye()) front_->abort(fmt::format("rank {} (process {}) ended", n.rank(), n.process()));
        wait->fd = -1;
      }
      ++wait;
    }
    if (link_ && wait->fd >= 0 && wait->revents) {
      front_->abort(fmt::format("the link to the other hosts (process {}) ended", link_->process()));
      wait->fd = -1;
    }
    look_for_hang();
  }
}

// The engine has told them to stop; one that has none yet, or that hangs, ends all the same.
void Followers::end_children() {
  const auto all_ended = [&] {
    for (const Process& p : processes_)
      if (!p.ended) return false;
    return true;
  };
  const auto until = Clock::now() + (front_->aborted() ? kLostMoments : kLastMoments);
  front_->abort("the front has ended");
  while (!all_ended() && Clock::now() < until) {
    for (size_t i = 0; i < processes_.size(); ++i) reap(i, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Followers::~Followers() {
  if (watcher_.joinable()) {
    stop_ = true;
    watcher_.join();
    const bool in_order = front_->ended_in_order();
    end_children();
    for (const Neighbour& n : others_) n.say_goodbye();
    if (link_ && in_order) link_->end_in_order();
  }
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (!processes_[i].ended) {
      ::kill(processes_[i].id, SIGKILL);
      reap(i, true);
    }
    if (processes_[i].descriptor >= 0) ::close(processes_[i].descriptor);
  }
}

}  // namespace reprise::ranks
