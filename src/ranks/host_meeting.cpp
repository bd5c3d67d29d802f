#include "ranks/host_meeting.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace reprise::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kHelloMagic = 0x52505253;
constexpr char kGoodbye = 'q';

// What a rank shows its leader, and the answer, which has the region's descriptor with it.
struct Hello {
  uint32_t magic = kHelloMagic, protocol = Control::kProtocol;
  int32_t rank = 0, size = 0, local_rank = 0, local_size = 0;
  cpu_set_t processors{};
};
struct Answer {
  uint32_t magic = kHelloMagic;
  int32_t leader = 0;
  char problem[240] = {};  // empty: welcome
};

struct Descriptor {
  explicit Descriptor(int value) : value(value) {}
  Descriptor(Descriptor&& other) noexcept : value(std::exchange(other.value, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  int value;
};

// An abstract address, which needs no removal.
struct Address {
  explicit Address(const std::string& job) {
    at.sun_family = AF_UNIX;
    const std::string name = fmt::format("reprise-ranks-{}-{}", ::getuid(), job);
    const size_t length = std::min(name.size(), sizeof at.sun_path - 1);
    std::memcpy(at.sun_path + 1, name.data(), length);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&at); }
  sockaddr_un at{};
  socklen_t bytes = 0;
};

Status problem(std::string_view what) {
  return error(Code::Device, "ranks of this host could not meet: {}: {}", what, std::strerror(errno));
}

// The process at the other end, when it is this user's.
Result<int> process_behind(int socket) {
  ucred who{};
  socklen_t bytes = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) return problem("who connects");
  if (who.uid != ::getuid())
    return error(Code::Device, "process {} of user {} connects to the ranks of user {}; it is turned away", who.pid,
                 who.uid, ::getuid());
  return static_cast<int>(who.pid);
}

int milliseconds_until(Clock::time_point end) {
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count()));
}

// Small packets of a SOCK_SEQPACKET socket: whole or not at all.
template <typename T>
Status take(int socket, T& out, int* descriptor, Clock::time_point end) {
  pollfd wait{socket, POLLIN, 0};
  if (::poll(&wait, 1, milliseconds_until(end)) <= 0) return error(Code::Device, "a rank of this host does not speak");
  iovec part{&out, sizeof out};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); got >= 0 && c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int carried = -1;
    std::memcpy(&carried, CMSG_DATA(c), sizeof carried);
    if (descriptor && *descriptor < 0)
      *descriptor = carried;
    else
      ::close(carried);
  }
  if (got != sizeof out || out.magic != kHelloMagic)
    return error(Code::Device, "a process that is no rank of this build speaks as one");
  return Status::ok();
}

template <typename T>
Status give(int socket, const T& what, int descriptor) {
  iovec part{const_cast<T*>(&what), sizeof what};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != sizeof what) return problem("a rank does not listen");
  return Status::ok();
}

Hello hello_of(const World& world) {
  Hello h;
  h.rank = world.rank;
  h.size = world.size;
  h.local_rank = world.local_rank;
  h.local_size = world.local_size;
  if (::sched_getaffinity(0, sizeof h.processors, &h.processors) != 0) CPU_ZERO(&h.processors);
  return h;
}

std::string mismatch(const Hello& theirs, const World& mine, const std::vector<Hello>& there) {
  if (theirs.protocol != Control::kProtocol)
    return fmt::format("rank {} speaks version {} of the protocol of ranks, rank {} version {}; start one build on all",
                       theirs.rank, theirs.protocol, mine.rank, Control::kProtocol);
  if (theirs.size != mine.size || theirs.local_size != mine.local_size)
    return fmt::format("rank {} is one of {} ({} on this host), rank {} one of {} ({})", theirs.rank, theirs.size,
                       theirs.local_size, mine.rank, mine.size, mine.local_size);
  for (const Hello& h : there)
    if (h.local_rank == theirs.local_rank || h.rank == theirs.rank)
      return fmt::format("two processes of this host are rank {} ({} here)", theirs.rank, theirs.local_rank);
  if (theirs.local_rank < 1 || theirs.local_rank >= mine.local_size || theirs.rank <= mine.rank ||
      theirs.rank >= mine.size)
    return fmt::format("rank {} is number {} of this host, whose first is rank {}", theirs.rank, theirs.local_rank,
                       mine.rank);
  return {};
}

// A launcher that binds ranks gives them sets that differ; those are kept. Else the leader's are shared out.
void share_processors(const std::vector<Hello>& all, Control& control) {
  bool bound = false;
  cpu_set_t together;
  CPU_ZERO(&together);
  for (const Hello& h : all) {
    bound |= !CPU_EQUAL(&h.processors, &all[0].processors);
    CPU_OR(&together, &together, &h.processors);
  }
  control.processors = CPU_COUNT(&together);
  control.bound = bound;
}

Result<HostRanks> lead(const World& world, const Address& address, Clock::time_point end) {
  const Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (listener.value < 0 || ::bind(listener.value, address.address(), address.bytes) != 0 ||
      ::listen(listener.value, kMaxRanks) != 0)
    return problem("the leader's socket");
  HostRanks out;
  ASSIGN_OR_RETURN(std::unique_ptr<Region> made, Region::create(world.size));
  out.region = std::move(made);
  out.leader = world.rank;
  std::vector<Hello> all{hello_of(world)};
  while (static_cast<int>(all.size()) < world.local_size) {
    pollfd wait{listener.value, POLLIN, 0};
    if (::poll(&wait, 1, milliseconds_until(end)) <= 0)
      return error(Code::Device, "rank {}: {} of the {} ranks of this host have come in time", world.rank, all.size(),
                   world.local_size);
    Descriptor socket(::accept4(listener.value, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.value < 0) continue;
    ASSIGN_OR_RETURN(const int process, process_behind(socket.value));
    Hello hello;
    RETURN_IF_ERROR(take(socket.value, hello, nullptr, end));
    if (const std::string wrong = mismatch(hello, world, all); !wrong.empty()) {
      Answer refusal;
      std::memcpy(refusal.problem, wrong.data(), std::min(wrong.size(), sizeof refusal.problem - 1));
      (void)give(socket.value, refusal, -1);
      return error(Code::Invalid, "{}", wrong);
    }
    all.push_back(hello);
    out.others.emplace_back(hello.rank, process, std::exchange(socket.value, -1));
  }
  share_processors(all, out.region->control());
  Answer welcome;
  welcome.leader = world.rank;
  for (const Neighbour& n : out.others) RETURN_IF_ERROR(give(n.socket(), welcome, out.region->descriptor()));
  return out;
}

Result<HostRanks> join(const World& world, const Address& address, Clock::time_point end) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.value < 0) return problem("a socket");
  while (::connect(socket.value, address.address(), address.bytes) != 0) {
    if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) return problem("the leader");
    if (Clock::now() > end)
      return error(Code::Device, "rank {}: the first rank of this host has not come in time", world.rank);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSIGN_OR_RETURN(const int process, process_behind(socket.value));
  RETURN_IF_ERROR(give(socket.value, hello_of(world), -1));
  Answer answer;
  int carried = -1;
  const Status got = take(socket.value, answer, &carried, end);
  const Descriptor memory(carried);
  RETURN_IF_ERROR(got);
  answer.problem[sizeof answer.problem - 1] = 0;
  if (answer.problem[0]) return error(Code::Invalid, "{}", answer.problem);
  HostRanks out;
  ASSIGN_OR_RETURN(std::unique_ptr<Region> region, Region::open(memory.value));
  out.region = std::move(region);
  out.leader = answer.leader;
  out.others.emplace_back(answer.leader, process, std::exchange(socket.value, -1));
  return out;
}

}  // namespace

Neighbour::Neighbour(Neighbour&& other) noexcept
    : rank_(other.rank_), process_(other.process_), socket_(std::exchange(other.socket_, -1)) {}

Neighbour::~Neighbour() {
  if (socket_ >= 0) ::close(socket_);
}

void Neighbour::say_goodbye() const { (void)::send(socket_, &kGoodbye, 1, MSG_NOSIGNAL); }

bool Neighbour::wait_for_goodbye() const {
  char byte = 0;
  ssize_t got = 0;
  while ((got = ::recv(socket_, &byte, 1, 0)) < 0 && errno == EINTR) {
  }
  return got == 1 && byte == kGoodbye;
}

void keep_to_share(const World& world, const Region& region, const Processors& processors) {
  (void)processors.take(world.local_rank, world.local_size, region.control().bound);
}

Result<HostRanks> meet_on_host(const World& world, const std::string& job, std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  if (world.local_size == 1) {
    HostRanks alone;
    ASSIGN_OR_RETURN(std::unique_ptr<Region> made, Region::create(world.size));
    alone.region = std::move(made);
    alone.leader = world.rank;
    return alone;
  }
  const Address address(job);
  return world.leader() ? lead(world, address, end) : join(world, address, end);
}

}  // namespace reprise::ranks
