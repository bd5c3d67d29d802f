#include "backends/cuda/communicator.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace reprise::cuda {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // between two looks at the world
constexpr int kPatience = 250;                  // looks, while a call holds the lock
// Links are made at the first calls, which takes long; later ones are enqueued at once.
constexpr int kYields = 1000;
constexpr std::chrono::microseconds kNap{50};

Status refused(const Nccl& nccl, int code) {
  const std::string words = nccl.words_of(code);
  // init.cc of NCCL: ncclInvalidUsage, with both ranks and the device in the words.
  if (code == kNcclInvalidUsage && words.find("Duplicate GPU") != std::string::npos)
    return invalid("two ranks use one GPU; each needs its own (CUDA_VISIBLE_DEVICES). {}", words);
  return error(Code::Device, "cuda: meet the other ranks: {}", words);
}

// The handle, when all ranks have come.
Result<NcclComm> enter(const Nccl& nccl, ranks::Member& member, const NcclId& id) {
  NcclConfig config;
  config.blocking = 0;
  NcclComm comm = nullptr;
  int code = nccl.ncclCommInitRankConfig(&comm, member.world().size, id, member.world().rank, &config);
  const auto come = [&] {
    if (code == kNcclInProgress)
      if (const int asked = nccl.ncclCommGetAsyncError(comm, &code); asked != kNcclSuccess) code = asked;
    return code != kNcclInProgress;
  };
  Status status = member.await(come, "the other ranks to meet over NCCL (`dist_timeout`)");
  // What another rank has called off fails here with words of NCCL that say less.
  if (code != kNcclSuccess && code != kNcclInProgress) status = member.aborted() ? member.lost() : refused(nccl, code);
  if (status.is_ok()) return comm;
  if (comm) (void)nccl.ncclCommAbort(comm);
  return status;
}

// A communicator keeps its member, so as long as one lives no other rank has its address.
struct Made {
  std::mutex mutex;
  std::map<const ranks::Member*, std::weak_ptr<Communicator>> by_rank;
};
Made& made() {
  static Made all;
  return all;
}

}  // namespace

std::shared_ptr<Communicator> Communicator::of(const ranks::Member& member) {
  Made& all = made();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_rank.find(&member);
  return found == all.by_rank.end() ? nullptr : found->second.lock();
}

Result<std::shared_ptr<Communicator>> Communicator::make(std::shared_ptr<const Nccl> nccl,
                                                         std::shared_ptr<ranks::Member> member,
                                                         int64_t worth_a_meeting) {
  RETURN_IF_ERROR(member->agree("NCCL", nccl->version()));
  NcclId id{};
  if (member->world().front())
    if (const int code = nccl->ncclGetUniqueId(&id); code != kNcclSuccess)
      return error(Code::Device, "cuda: begin a communicator: {}", nccl->words_of(code));
  RETURN_IF_ERROR(member->spread(id.internal));
  ASSIGN_OR_RETURN(const NcclComm comm, enter(*nccl, *member, id));
  std::shared_ptr<Communicator> mine(new Communicator(std::move(nccl), std::move(member), comm, worth_a_meeting));
  Made& all = made();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_rank, [](const auto& entry) { return entry.second.expired(); });
  all.by_rank[mine->member_.get()] = mine;
  return mine;
}

Communicator::Communicator(std::shared_ptr<const Nccl> nccl, std::shared_ptr<ranks::Member> member, NcclComm comm,
                           int64_t worth_a_meeting)
    : nccl_(std::move(nccl)),
      member_(std::move(member)),
      comm_(comm),
      worth_a_meeting_(worth_a_meeting),
      watcher_([this] { watch(); }) {}

// Where the world has ended behind the watcher's last look, ranks that are gone do not come to ncclCommDestroy.
Communicator::~Communicator() {
  ended_ = true;
  watcher_.join();
  if (!aborted_) (void)(member_->aborted() ? nccl_->ncclCommAbort(comm_) : nccl_->ncclCommDestroy(comm_));
}

void Communicator::watch() {
  for (int busy = 0; !ended_; std::this_thread::sleep_for(kLook)) {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock && (!member_->aborted() || ++busy < kPatience)) continue;
    int code = kNcclSuccess;
    // Ranks that end one after the other in order look like links that fail.
    if (lock && !member_->aborted() && !member_->ended_in_order() &&
        nccl_->ncclCommGetAsyncError(comm_, &code) == kNcclSuccess && code != kNcclSuccess && code != kNcclInProgress)
      member_->abort(fmt::format("rank {}: {}", member_->world().rank, nccl_->words_of(code)));
    if (!member_->aborted()) continue;
    aborted_ = true;
    if (lock) lock.unlock();
    (void)nccl_->ncclCommAbort(comm_);
    return;
  }
}

template <class F>
const char* Communicator::enqueue(const char* what, const F& call) {
  for (int code = kNcclInProgress, round = 0;; ++round) {
    {
      const std::lock_guard lock(mutex_);
      // What is under way goes on until the watcher has called it off.
      if (aborted_ || (round == 0 && member_->aborted())) return failed(kNcclInvalidUsage, what);
      const int asked = round == 0 ? (code = call()) : nccl_->ncclCommGetAsyncError(comm_, &code);
      if (asked != kNcclSuccess) code = asked;
      if (code != kNcclInProgress) return failed(code, what);
    }
    if (round < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
  }
}

const char* Communicator::failed(int code, const char* what) {
  if (code == kNcclSuccess) return nullptr;
  if (words_.empty())
    words_ = member_->aborted() ? member_->lost().message() : fmt::format("{}: {}", what, nccl_->words_of(code));
  return words_.c_str();
}

const char* Communicator::all_gather(const void* from, void* to, int64_t bytes, CUstream_st* stream) {
  return enqueue("ncclAllGather",
                 [&] { return nccl_->ncclAllGather(from, to, static_cast<size_t>(bytes), kNcclUint8, comm_, stream); });
}

const char* Communicator::deal(const void* from, void* to, int64_t bytes, int64_t share, CUstream_st* stream) {
  const auto size_of_share = [&](int r) { return std::clamp<int64_t>(bytes - r * share, 0, share); };
  const int64_t mine = size_of_share(rank());
  return enqueue("ncclSend", [&] {
    int code = nccl_->ncclGroupStart();
    if (code != kNcclSuccess) return code;
    const auto goes_on = [&] { return code == kNcclSuccess || code == kNcclInProgress; };
    for (int r = 0; r < size() && goes_on(); ++r) {
      const auto* part = static_cast<const uint8_t*>(from) + r * share;
      if (const int64_t n = size_of_share(r); n > 0)
        code = nccl_->ncclSend(part, static_cast<size_t>(n), kNcclUint8, r, comm_, stream);
      if (mine > 0 && goes_on())
        code = nccl_->ncclRecv(static_cast<uint8_t*>(to) + r * mine, static_cast<size_t>(mine), kNcclUint8, r, comm_,
                               stream);
    }
    const int ended = nccl_->ncclGroupEnd();
    return goes_on() ? ended : code;
  });
}

const char* Communicator::merge(void* data, int64_t bytes, CUstream_st* stream) {
  // Sums with zeros: those of wider integers have the same bits.
  const bool wide = bytes % 4 == 0;
  return enqueue("ncclAllReduce", [&] {
    return nccl_->ncclAllReduce(data, data, static_cast<size_t>(wide ? bytes / 4 : bytes),
                                wide ? kNcclInt32 : kNcclUint8, kNcclSum, comm_, stream);
  });
}

}  // namespace reprise::cuda
