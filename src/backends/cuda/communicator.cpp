#include "backends/cuda/communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>

namespace reprise::cuda {
namespace {

// A rank's ncclCommInitRank, which returns when all ranks have come and cannot be called off: it has a thread of its
// own, which is left alone when the world ends first.
struct Entry {
  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  Status status;
  NcclComm comm = nullptr;
};

Status refused(const Nccl& nccl, int code) {
  const std::string words = nccl.words_of(code);
  // init.cc of NCCL: ncclInvalidUsage, with both ranks and the device in the words.
  if (code == kNcclInvalidUsage && words.find("Duplicate GPU") != std::string::npos)
    return invalid("two ranks use one GPU; each needs its own (CUDA_VISIBLE_DEVICES). {}", words);
  return error(Code::Device, "cuda: meet the other ranks: {}", words);
}

Result<NcclComm> enter(std::shared_ptr<const Nccl> nccl, ranks::Member& member, const NcclId& id,
                       std::function<Status()> use_device) {
  const auto entry = std::make_shared<Entry>();
  std::thread([entry, nccl, id, use_device = std::move(use_device), world = member.world()] {
    NcclComm comm = nullptr;
    Status status = use_device();
    if (status.is_ok())
      if (const int code = nccl->ncclCommInitRank(&comm, world.size, id, world.rank); code != kNcclSuccess)
        status = refused(*nccl, code);
    const std::lock_guard lock(entry->mutex);
    entry->status = std::move(status);
    entry->comm = comm;
    entry->is_done = true;
    entry->done.notify_all();
  }).detach();
  std::unique_lock lock(entry->mutex);
  while (!entry->done.wait_for(lock, std::chrono::milliseconds(20), [&] { return entry->is_done; }))
    if (member.aborted()) return member.lost();
  RETURN_IF_ERROR(entry->status);
  return entry->comm;
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::make(std::shared_ptr<const Nccl> nccl,
                                                         std::shared_ptr<ranks::Member> member,
                                                         std::function<Status()> use_device) {
  RETURN_IF_ERROR(member->agree("NCCL", nccl->version()));
  NcclId id{};
  std::string card;
  if (member->world().front()) {
    if (const int code = nccl->ncclGetUniqueId(&id); code != kNcclSuccess)
      return error(Code::Device, "cuda: begin a communicator: {}", nccl->words_of(code));
    card.assign(id.internal, sizeof id.internal);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> cards, member->show(card));
  if (cards[0].size() != sizeof id.internal)
    return error(Code::Internal, "rank 0 shows {} bytes of a communicator", cards[0].size());
  std::memcpy(id.internal, cards[0].data(), sizeof id.internal);
  ASSIGN_OR_RETURN(const NcclComm comm, enter(nccl, *member, id, std::move(use_device)));
  return std::shared_ptr<Communicator>(new Communicator(std::move(nccl), std::move(member), comm));
}

Communicator::Communicator(std::shared_ptr<const Nccl> nccl, std::shared_ptr<ranks::Member> member, NcclComm comm)
    : nccl_(std::move(nccl)), member_(std::move(member)), comm_(comm), watcher_([this] { watch(); }) {}

Communicator::~Communicator() {
  ended_ = true;
  watcher_.join();
  if (!aborted_) (void)nccl_->ncclCommDestroy(comm_);
}

void Communicator::watch() {
  for (; !ended_; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    int code = kNcclSuccess;
    // Ranks that end one after the other in order look like links that fail.
    if (!member_->aborted() && !member_->ended_in_order() &&
        nccl_->ncclCommGetAsyncError(comm_, &code) == kNcclSuccess && code != kNcclSuccess && code != kNcclInProgress)
      member_->abort(fmt::format("rank {}: {}", member_->world().rank, nccl_->words_of(code)));
    if (!member_->aborted()) continue;
    aborted_ = true;
    (void)nccl_->ncclCommAbort(comm_);
    return;
  }
}

const char* Communicator::failed(int code, const char* what) {
  if (code == kNcclSuccess) return nullptr;
  const std::lock_guard lock(mutex_);
  if (words_.empty())
    words_ = member_->aborted() ? member_->lost().message() : fmt::format("{}: {}", what, nccl_->words_of(code));
  return words_.c_str();
}

const char* Communicator::all_gather(const void* from, void* to, int64_t bytes, CUstream_st* stream) {
  if (aborted_) return failed(kNcclInvalidUsage, "ncclAllGather");
  return failed(nccl_->ncclAllGather(from, to, static_cast<size_t>(bytes), kNcclUint8, comm_, stream), "ncclAllGather");
}

const char* Communicator::deal(const void* from, void* to, int64_t bytes, int64_t share, CUstream_st* stream) {
  if (aborted_) return failed(kNcclInvalidUsage, "ncclSend");
  const auto size_of_share = [&](int r) { return std::clamp<int64_t>(bytes - r * share, 0, share); };
  const int64_t mine = size_of_share(rank());
  int code = nccl_->ncclGroupStart();
  for (int r = 0; r < size() && code == kNcclSuccess; ++r) {
    const auto* part = static_cast<const uint8_t*>(from) + r * share;
    if (const int64_t n = size_of_share(r); n > 0)
      code = nccl_->ncclSend(part, static_cast<size_t>(n), kNcclUint8, r, comm_, stream);
    if (mine > 0 && code == kNcclSuccess)
      code = nccl_->ncclRecv(static_cast<uint8_t*>(to) + r * mine, static_cast<size_t>(mine), kNcclUint8, r, comm_,
                             stream);
  }
  const int ended = nccl_->ncclGroupEnd();
  return failed(code == kNcclSuccess ? ended : code, "ncclSend");
}

const char* Communicator::merge(void* data, int64_t bytes, CUstream_st* stream) {
  if (aborted_) return failed(kNcclInvalidUsage, "ncclAllReduce");
  // Sums with zeros: those of wider integers have the same bits.
  const bool wide = bytes % 4 == 0;
  return failed(nccl_->ncclAllReduce(data, data, static_cast<size_t>(wide ? bytes / 4 : bytes),
                                     wide ? kNcclInt32 : kNcclUint8, kNcclSum, comm_, stream),
                "ncclAllReduce");
}

}  // namespace reprise::cuda
