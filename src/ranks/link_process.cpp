#include "ranks/link_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "base/log.h"
#include "base/spin.h"
#include "ranks/followers.h"
#include "ranks/link.h"

namespace reprise::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kInOrder = 'q';
// A link that has had nothing to do for so long naps between looks; one that waits for a step naps longer.
constexpr std::chrono::microseconds kLinkAwake{100};
constexpr std::chrono::microseconds kShortNap{20}, kLongNap{200};
constexpr std::chrono::milliseconds kQuiet{100};
// For last words: after an orderly end, and after a loss.
constexpr std::chrono::milliseconds kParting{5000}, kLastWords{500};

enum class Rank { Runs, EndsInOrder, IsGone };

// What the rank has said over the lifeline.
Rank look_after(int lifeline) {
  char byte = 0;
  const ssize_t got = ::read(lifeline, &byte, 1);
  if (got < 0) return Rank::Runs;
  return got == 1 && byte == kInOrder ? Rank::EndsInOrder : Rank::IsGone;
}

std::string name_of_host() {
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  return name;
}

// Looks at everything until the rank has ended.
Rank serve(Link* link, Region& region, int rank, int parent, int lifeline) {
  auto last = Clock::now();
  while (true) {
    const Rank state = look_after(lifeline);
    if (state == Rank::IsGone) {
      const std::string lost = fmt::format("rank {} (process {} on host {}) ended", rank, parent, name_of_host());
      region.control().abort(lost);
    }
    if (state != Rank::Runs) return state;
    if (!link) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    if (link->turn()) {
      last = Clock::now();
      continue;
    }
    const auto quiet = Clock::now() - last;
    if (quiet < kLinkAwake)
      spin_pause();
    else
      std::this_thread::sleep_for(quiet < kQuiet ? kShortNap : kLongNap);
  }
}

void part_or_exit(const reprise_wire& wire) {
  ::signal(SIGALRM, [](int) { ::_exit(1); });  // where another process does not part
  ::alarm(static_cast<unsigned>(kParting.count() / 1000));
  wire.finish();
  ::alarm(0);
}

[[noreturn]] void live(const reprise_wire& wire, Region& region, const World& world, int leader, int64_t hosts,
                       int parent, int lifeline, std::chrono::milliseconds timeout) {
  std::vector<int32_t> leaders(kMaxRanks);
  int32_t rank = 0, size = 0;
  char problem[256] = "";
  if (wire.start(leader, &rank, &size, leaders.data(), kMaxRanks, problem, sizeof problem) != 0) {
    region.control().abort(problem);
    ::_exit(1);
  }
  if (rank != world.rank || size != world.size) {
    region.control().abort(
        fmt::format("MPI says that this is rank {} of {}, the launcher {} of {}; with srun, its option mpi (pmix) "
                    "chooses how MPI is told",
                    rank, size, world.rank, world.size));
    ::_exit(1);
  }
  leaders.resize(static_cast<size_t>(size));
  const auto there = static_cast<int64_t>(std::set<int32_t>(leaders.begin(), leaders.end()).size());
  if (hosts > 1 && there != hosts)
    region.control().abort(fmt::format("`nnodes` {}: the launcher started ranks on {} hosts", hosts, there));
  std::unique_ptr<Link> link;
  if (world.leader()) link = std::make_unique<Link>(region, world, std::move(leaders), wire, timeout);
  const Rank end = serve(link.get(), region, rank, parent, lifeline);
  if (link) link->flush(end == Rank::EndsInOrder ? kParting : kLastWords);
  if (end != Rank::EndsInOrder) ::_exit(1);
  part_or_exit(wire);
  ::_exit(0);
}

// What a child must not share with its rank.
void become_apart() {
  become_silent();
  // A launcher binds a rank to its processors; the link would take turns with it there.
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  (void)::sched_setaffinity(0, sizeof all, &all);
  (void)::prctl(PR_SET_TIMERSLACK, 1000UL);
}

std::filesystem::path folder_of_binary() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

}  // namespace

Result<const reprise_wire*> find_mpi_wire() {
  constexpr const char* kName = "libreprise-mpi.so";
  const char* named = std::getenv("REPRISE_MPI_DIR");
  std::vector<std::filesystem::path> folders;
  if (named && *named)
    folders = {named};
  else
    folders = {folder_of_binary() / "../lib", folder_of_binary() / "lib"};
  std::string why;
  for (const auto& folder : folders) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / kName, ignored)) continue;
    // MPI's own plugins look for its symbols.
    void* library = ::dlopen((folder / kName).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      why = ::dlerror();
      continue;
    }
    const auto entry = reinterpret_cast<reprise_wire_entry>(::dlsym(library, "reprise_mpi_wire"));
    const reprise_wire* wire = entry ? entry() : nullptr;
    if (wire && wire->version == REPRISE_WIRE_VERSION) return wire;
    why = fmt::format("{} is of another build", (folder / kName).string());
  }
  if (!why.empty())
    return error(Code::Unsupported, "several hosts need MPI: {} (Debian: openmpi-bin, and libopenmpi3 on every host)",
                 why);
  return error(Code::Unsupported,
               "several hosts need {}, which is not in lib beside bin: it is built where mpi.h is found (Debian: "
               "libopenmpi-dev and openmpi-bin); REPRISE_MPI_DIR names another folder",
               kName);
}

Result<std::unique_ptr<LinkProcess>> LinkProcess::start(const std::shared_ptr<Region>& region, const World& world,
                                                        int leader, int64_t hosts, std::chrono::milliseconds timeout) {
  ASSIGN_OR_RETURN(const reprise_wire* wire, find_mpi_wire());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return error(Code::OutOfMemory, "the link between hosts could not be started: {}", std::strerror(errno));
  std::fflush(nullptr);
  const int parent = ::getpid();
  const pid_t id = ::fork();
  if (id == 0) {
    ::close(ends[1]);
    (void)::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    become_apart();
    live(*wire, *region, world, leader, hosts, parent, ends[0], timeout);
  }
  ::close(ends[0]);
  if (id < 0) {
    ::close(ends[1]);
    return error(Code::OutOfMemory, "the link between hosts could not be started: {}", std::strerror(errno));
  }
  std::unique_ptr<LinkProcess> out(new LinkProcess);
  out->process_ = id;
  out->descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, id, 0));
  out->lifeline_ = ends[1];
  return out;
}

void LinkProcess::end_in_order() {
  if (lifeline_ < 0) return;
  (void)!::write(lifeline_, &kInOrder, 1);
  pollfd ended{descriptor_, POLLIN, 0};
  (void)::poll(&ended, 1, static_cast<int>(2 * kParting.count()));
  ::close(std::exchange(lifeline_, -1));
}

LinkProcess::~LinkProcess() {
  if (lifeline_ >= 0) ::close(lifeline_);
  pollfd ended{descriptor_, POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(4 * kLastWords.count())) <= 0) ::kill(process_, SIGKILL);
  (void)::waitpid(process_, nullptr, 0);
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace reprise::ranks
