#include "backends/ascend/communicator.h"

#include <cstdlib>

#include "backends/ascend/library.h"

namespace reprise::ascend {
namespace {

// HcclDataType and HcclReduceOp (hccl_types.h).
constexpr int32_t kInt8 = 0, kInt16 = 1, kInt32 = 2, kSum = 0;

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::make(std::shared_ptr<const Library> library,
                                                         std::shared_ptr<ranks::Member> member, bool for_experts) {
  std::unique_ptr<Communicator> out(new Communicator(std::move(library), std::move(member)));
  const Collectives& hccl = out->library_->collectives();
  std::vector<std::string> absent;
  for (const std::string& name : hccl.missing())
    for (const char* needed : {"HcclGetRootInfo", "HcclCommInitRootInfo", "HcclCommDestroy", "HcclAllGather",
                               "HcclAllReduce", "HcclAlltoAll"})
      if (name == needed) absent.push_back(name);
  if (!absent.empty())
    return error(Code::Unsupported, "several ranks need HCCL, and {} of it are not there (libhccl.so, libhcomm.so)",
                 fmt::join(absent, ", "));
  ASSIGN_OR_RETURN(out->comm_, out->meet());
  if (!for_experts || !hccl.HcclGetCommName) return out;
  // All ranks have windows of one size (OT-2608 aclnnMoeDistributeDispatchV2.md:617), by which they count rounds alike.
  const char* megabytes = std::getenv("HCCL_BUFFSIZE");
  RETURN_IF_ERROR(out->member_->agree("HCCL_BUFFSIZE", megabytes ? megabytes : ""));
  ASSIGN_OR_RETURN(out->experts_, out->meet());
  char name[128] = {};
  RETURN_IF_ERROR(out->check(hccl.HcclGetCommName(out->experts_, name), "name a communicator"));
  out->experts_name_ = name;
  return out;
}

Result<HcclComm> Communicator::meet() const {
  const Collectives& hccl = library_->collectives();
  HcclRootInfo root{};
  if (member_->world().front()) RETURN_IF_ERROR(check(hccl.HcclGetRootInfo(&root), "begin a communicator"));
  RETURN_IF_ERROR(member_->spread(root.internal));
  HcclComm comm = nullptr;
  RETURN_IF_ERROR(check(hccl.HcclCommInitRootInfo(static_cast<uint32_t>(size()), &root,
                                                  static_cast<uint32_t>(member_->world().rank), &comm),
                        "meet the other ranks"));
  return comm;
}

Communicator::~Communicator() {
  for (HcclComm comm : {comm_, experts_})
    if (comm) (void)library_->collectives().HcclCommDestroy(comm);
}

Status Communicator::check(int32_t code, std::string_view what) const {
  if (code == 0) return Status::ok();
  if (member_->aborted()) return member_->lost();
  const Collectives& hccl = library_->collectives();
  const char* words = hccl.HcclGetErrorString ? hccl.HcclGetErrorString(code) : nullptr;
  const char* more = library_->aclGetRecentErrMsg ? library_->aclGetRecentErrMsg() : nullptr;
  return error(Code::Device, "ascend: {}: HCCL error {}{}{}{}{}", what, code, words ? " (" : "", words ? words : "",
               words ? ")" : "", more && *more ? fmt::format(": {}", more) : "");
}

Status Communicator::all_gather(const void* from, void* to, int64_t bytes, aclrtStream stream) const {
  return check(library_->collectives().HcclAllGather(const_cast<void*>(from), to, static_cast<uint64_t>(bytes), kInt8,
                                                     comm_, stream),
               "HcclAllGather");
}

Status Communicator::all_to_all(const void* from, void* to, int64_t bytes, aclrtStream stream) const {
  const auto count = static_cast<uint64_t>(bytes);
  return check(library_->collectives().HcclAlltoAll(from, count, kInt8, to, count, kInt8, comm_, stream),
               "HcclAlltoAll");
}

Status Communicator::can_gather_among() const {
  if (library_->collectives().HcclAlltoAllV) return Status::ok();
  return error(Code::Unsupported, "columns of some ranks go by HcclAlltoAllV, which is not there (libhccl.so)");
}

// The vendor takes numbers of each rank: those of other groups are zero.
Status Communicator::gather_among(const void* from, void* to, std::span<const int64_t> bytes,
                                  aclrtStream stream) const {
  const auto all = static_cast<size_t>(size()), ways = bytes.size(), me = static_cast<size_t>(member_->world().rank),
             begin = me / ways * ways;
  std::vector<uint64_t> sent(all), zero(all), taken(all), places(all);
  uint64_t place = 0;
  for (size_t i = 0; i < ways; ++i) {
    sent[begin + i] = static_cast<uint64_t>(bytes[me - begin]);
    taken[begin + i] = static_cast<uint64_t>(bytes[i]);
    places[begin + i] = place;
    place += taken[begin + i];
  }
  return check(library_->collectives().HcclAlltoAllV(from, sent.data(), zero.data(), kInt8, to, taken.data(),
                                                     places.data(), kInt8, comm_, stream),
               "HcclAlltoAllV");
}

Status Communicator::merge(void* data, int64_t count, DType type, aclrtStream stream) const {
  const int32_t as = size_of(type) == 1 ? kInt8 : size_of(type) == 2 ? kInt16 : kInt32;
  return check(library_->collectives().HcclAllReduce(data, data, static_cast<uint64_t>(count), as, kSum, comm_, stream),
               "HcclAllReduce");
}

}  // namespace reprise::ascend
