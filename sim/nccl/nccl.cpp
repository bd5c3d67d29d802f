// A stand-in for NVIDIA's NCCL, for tests without GPUs: the functions that Reprise calls, for ranks that are threads of
// one process and have their data in host memory. Calls return at once, and what is enqueued is done when the last rank
// has made the call: until then ncclCommGetAsyncError says ncclInProgress.
//
// What it holds callers to, beside types and numbers as nccl.h of NCCL has them:
//   - a communicator begins when all its ranks have come, each with a number of its own (nccl.h, ncclCommInitRank), and
//     is not blocking (ncclConfig_t of 2.14);
//   - no call before the one before is enqueued (init.cc, ncclCommEnsureReady: "Attempt to use communicator before the
//     previous operation returned ncclSuccess");
//   - two ranks on one GPU are ncclInvalidUsage, with both in the words (src/init.cc, "Duplicate GPU detected");
//   - all ranks make the same calls with the same counts and types (user guide, "Collective Operations"). NCCL hangs or
//     writes over its ends where they do not; here every rank is told.
//   - an abort ends what is under way on this rank, and frees the handle (nccl.h, ncclCommAbort).
// Sums of floats are refused: their order is NCCL's own, so nothing here asks for them.
//
// NCCL_STAND_IN_VERSION: what ncclGetVersion says. NCCL_STAND_IN_FAULT: "duplicate", as if all ranks had one GPU;
// "absent": the ranks never meet; "link:N": the links fail at collective N.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {  // of 2.14
  size_t size;
  unsigned magic, version;
  int blocking;
};
enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum { ncclInt8 = 0, ncclUint8 = 1, ncclInt32 = 2, ncclUint32 = 3, ncclInt64 = 4, ncclUint64 = 5, ncclFloat16 = 6 };
enum { ncclSum = 0 };
}

namespace {

// One send or receive of a group.
struct Move {
  bool sends;
  int peer;
  void* data;
  size_t bytes;
};

struct Call {
  const char* name = nullptr;
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  int type = 0;
  std::vector<Move> moves = {};

  bool fits(const Call& o) const { return name == o.name && count == o.count && type == o.type; }
};

thread_local std::string last_error;
constexpr const char* kMoves = "ncclSend and ncclRecv";

ncclResult_t fail(ncclResult_t code, std::string words) {
  last_error = std::move(words);
  return code;
}

std::string fault() {
  const char* text = std::getenv("NCCL_STAND_IN_FAULT");
  return text ? text : "";
}

size_t size_of(int type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclInt32:
    case ncclUint32: return 4;
    case ncclInt64:
    case ncclUint64: return 8;
    default: return type == ncclFloat16 || type == 9 ? 2 : type == 7 ? 4 : 8;
  }
}

// The ranks of one communicator, which meet at each call.
class Group {
 public:
  explicit Group(int size)
      : calls_(static_cast<size_t>(size)),
        here_(static_cast<size_t>(size), false),
        came_at_(static_cast<size_t>(size), 0) {}
  int size() const { return static_cast<int>(calls_.size()); }

  ncclResult_t enter(int rank) {
    const std::lock_guard lock(mutex_);
    if (here_[static_cast<size_t>(rank)]) return fail(ncclInvalidUsage, "this rank is here already");
    here_[static_cast<size_t>(rank)] = true;
    ++entered_;
    return ncclInProgress;
  }

  ncclResult_t meet(int rank, const Call& call) {
    const std::lock_guard lock(mutex_);
    const ncclResult_t now = state_of(rank);
    if (now == ncclInProgress)
      return fail(ncclInvalidArgument,
                  "Attempt to use communicator before the previous operation returned ncclSuccess");
    if (now != ncclSuccess) return now;
    calls_[static_cast<size_t>(rank)] = call;
    came_at_[static_cast<size_t>(rank)] = number_;
    if (++came_ == size()) {
      came_ = 0;
      state_ = all_together();
      ++number_;
    }
    return state_of(rank);
  }

  ncclResult_t state(int rank) {
    const std::lock_guard lock(mutex_);
    return state_of(rank);
  }

  void end(ncclResult_t code, const char* words) {
    const std::lock_guard lock(mutex_);
    if (state_ != ncclSuccess) return;
    state_ = code;
    words_ = words;
  }

 private:
  ncclResult_t state_of(int rank) const {
    // Each rank finds this out by itself and does not depend on what the others do then.
    if (fault() == "duplicate" && size() > 1 && entered_ == size())
      return fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                                        std::to_string(rank == 0 ? 1 : 0) + " both on CUDA device 1000");
    if (state_ != ncclSuccess) return fail(state_, words_);
    if (entered_ < size() || fault() == "absent") return ncclInProgress;
    return came_at_[static_cast<size_t>(rank)] == number_ ? ncclInProgress : ncclSuccess;
  }

  ncclResult_t all_together() {
    const Call& first = calls_[0];
    for (int r = 1; r < size(); ++r)
      if (const Call& c = calls_[static_cast<size_t>(r)]; !c.fits(first)) {
        char text[256];
        std::snprintf(
            text, sizeof text, "collective %llu: rank 0 calls %s of %zu numbers of type %d, rank %d %s of %zu of %d",
            static_cast<unsigned long long>(number_), first.name, first.count, first.type, r, c.name, c.count, c.type);
        words_ = text;
        return ncclInvalidUsage;
      }
    if (fault() == "link:" + std::to_string(number_)) {
      words_ = "the links have failed";
      return ncclRemoteError;
    }
    if (first.name == kMoves) return move_all();
    const size_t bytes = first.count * size_of(first.type);
    std::vector<uint8_t> all(std::string_view(first.name) == "ncclAllGather" ? bytes * calls_.size() : bytes);
    if (std::string_view(first.name) == "ncclAllGather")
      for (size_t r = 0; r < calls_.size(); ++r) copy(all.data() + r * bytes, calls_[r].from, bytes);
    else
      for (const Call& c : calls_) add(all.data(), static_cast<const uint8_t*>(c.from), first);
    for (const Call& c : calls_) copy(c.to, all.data(), all.size());
    return ncclSuccess;
  }

  // The k-th send to a rank meets the k-th receive there (nccl.h, ncclSend: a receive of the same count and type).
  ncclResult_t move_all() {
    for (size_t from = 0; from < calls_.size(); ++from)
      for (size_t to = 0; to < calls_.size(); ++to) {
        std::vector<const Move*> sent, received;
        for (const Move& m : calls_[from].moves)
          if (m.sends && m.peer == static_cast<int>(to)) sent.push_back(&m);
        for (const Move& m : calls_[to].moves)
          if (!m.sends && m.peer == static_cast<int>(from)) received.push_back(&m);
        bool fits = sent.size() == received.size();
        for (size_t i = 0; fits && i < sent.size(); ++i) fits = sent[i]->bytes == received[i]->bytes;
        if (!fits) {
          words_ = "rank " + std::to_string(from) + " sends to rank " + std::to_string(to) +
                   " what that one does not receive";
          return ncclInvalidUsage;
        }
        for (size_t i = 0; i < sent.size(); ++i) copy(received[i]->data, sent[i]->data, sent[i]->bytes);
      }
    return ncclSuccess;
  }

  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes) std::memcpy(to, from, bytes);
  }
  template <class T>
  static void add_each(uint8_t* sum, const uint8_t* more, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      T a, b;
      std::memcpy(&a, sum + i * sizeof(T), sizeof a);
      std::memcpy(&b, more + i * sizeof(T), sizeof b);
      a = static_cast<T>(a + b);
      std::memcpy(sum + i * sizeof(T), &a, sizeof a);
    }
  }
  static void add(uint8_t* sum, const uint8_t* more, const Call& c) {
    switch (size_of(c.type)) {
      case 1: return add_each<uint8_t>(sum, more, c.count);
      case 4: return add_each<uint32_t>(sum, more, c.count);
      default: return add_each<uint64_t>(sum, more, c.count);
    }
  }

  std::mutex mutex_;
  std::vector<Call> calls_;  // by rank
  std::vector<bool> here_;
  std::vector<uint64_t> came_at_;  // by rank, the number of its last collective
  int entered_ = 0, came_ = 0;
  uint64_t number_ = 1;  // of the collective under way
  ncclResult_t state_ = ncclSuccess;
  std::string words_;
};

// Guards the groups and the communicators.
std::mutex groups_mutex;
std::map<std::string, std::shared_ptr<Group>>& groups() {
  static std::map<std::string, std::shared_ptr<Group>> all;
  return all;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
};

static std::map<ncclComm*, std::unique_ptr<ncclComm>>& communicators() {
  static std::map<ncclComm*, std::unique_ptr<ncclComm>> all;
  return all;
}

#define API extern "C" __attribute__((visibility("default")))

API ncclResult_t ncclGetVersion(int* version) {
  const char* text = std::getenv("NCCL_STAND_IN_VERSION");
  *version = text ? std::atoi(text) : 22005;
  return ncclSuccess;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static uint64_t last = 0;
  const std::lock_guard lock(groups_mutex);
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "stand-in %llu", static_cast<unsigned long long>(++last));
  return ncclSuccess;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm** comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (!comm || ranks < 1 || rank < 0 || rank >= ranks) return fail(ncclInvalidArgument, "a rank outside its world");
  if (!config || config->magic != 0xcafebeef || config->size < sizeof(ncclConfig_t) || config->version < 21400)
    return fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  if (config->blocking != 0) return fail(ncclInvalidArgument, "calls that wait are not understood here");
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(groups_mutex);
    std::shared_ptr<Group>& known = groups()[std::string(id.internal, sizeof id.internal)];
    if (!known) known = std::make_shared<Group>(ranks);
    group = known;
  }
  if (group->size() != ranks) return fail(ncclInvalidArgument, "ranks disagree on their number");
  const ncclResult_t code = group->enter(rank);
  if (code != ncclInProgress) return code;
  auto made = std::make_unique<ncclComm>(ncclComm{group, rank});
  *comm = made.get();
  const std::lock_guard lock(groups_mutex);
  communicators()[*comm] = std::move(made);
  return code;
}

API ncclResult_t ncclCommDestroy(ncclComm* comm) {
  const std::lock_guard lock(groups_mutex);
  return communicators().erase(comm) == 1 ? ncclSuccess : fail(ncclInvalidArgument, "no such communicator");
}

API ncclResult_t ncclCommAbort(ncclComm* comm) {
  comm->group->end(ncclRemoteError, "the communicator was aborted");
  return ncclCommDestroy(comm);
}

API ncclResult_t ncclCommGetAsyncError(ncclComm* comm, ncclResult_t* code) {
  *code = comm->group->state(comm->rank);
  return ncclSuccess;
}

API const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess: return "no error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    default: return "unhandled system error";
  }
}

API const char* ncclGetLastError(ncclComm*) { return last_error.c_str(); }

API ncclResult_t ncclAllGather(const void* from, void* to, size_t count, int type, ncclComm* comm, void*) {
  return comm->group->meet(comm->rank, {"ncclAllGather", from, to, count, type});
}

API ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, int type, int op, ncclComm* comm, void*) {
  if (type >= ncclFloat16 || op != ncclSum) return fail(ncclInvalidArgument, "here only integers are added");
  return comm->group->meet(comm->rank, {"ncclAllReduce", from, to, count, type});
}

static thread_local bool grouped = false;
static thread_local ncclComm* group_of = nullptr;
static thread_local std::vector<Move> group_moves;

API ncclResult_t ncclGroupStart() {
  if (grouped) return fail(ncclInvalidUsage, "groups inside of groups are not understood here");
  grouped = true;
  group_of = nullptr;
  group_moves.clear();
  return ncclSuccess;
}

static ncclResult_t add_move(ncclComm* comm, Move m) {
  if (!grouped) return fail(ncclInvalidUsage, "sends and receives outside of a group are not understood here");
  if (m.peer < 0 || m.peer >= comm->group->size()) return fail(ncclInvalidArgument, "a rank outside its world");
  group_of = comm;
  group_moves.push_back(m);
  return ncclSuccess;
}

API ncclResult_t ncclSend(const void* from, size_t count, int type, int peer, ncclComm* comm, void*) {
  return add_move(comm, {true, peer, const_cast<void*>(from), count * size_of(type)});
}

API ncclResult_t ncclRecv(void* to, size_t count, int type, int peer, ncclComm* comm, void*) {
  return add_move(comm, {false, peer, to, count * size_of(type)});
}

API ncclResult_t ncclGroupEnd() {
  if (!grouped) return fail(ncclInvalidUsage, "no group has begun");
  grouped = false;
  if (!group_of) return ncclSuccess;
  Call call{kMoves};
  call.moves = std::move(group_moves);
  return group_of->group->meet(group_of->rank, call);
}
