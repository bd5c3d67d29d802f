#include "backends/ascend/ascend_device.h"

#include <cstring>

#include "backends/ascend/ascend_graph.h"
#include "backends/ascend/card_checks.h"
#include "backends/ascend/read_ahead.h"
#include "backends/ascend/start_checks.h"
#include "backends/shared_pool.h"
#include "device/aligned_pool.h"

namespace reprise::ascend {
namespace {

// Device memory, or pinned host memory.
class AscendPool final : public AlignedPool {
 public:
  AscendPool(std::shared_ptr<Context> context, bool host, size_t limit)
      : AlignedPool(limit), context_(std::move(context)), host_(host) {}

 private:
  Status allocate_raw(size_t bytes, void** raw) override {
    RETURN_IF_ERROR(context_->attach());
    const Library& acl = context_->library();
    return host_ ? acl.check(acl.aclrtMallocHost(raw, bytes), "pinned host memory")
                 : acl.check(acl.aclrtMalloc(raw, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "memory");
  }
  void free_raw(void* raw) override {
    if (!context_->attach().is_ok()) return;
    const Library& acl = context_->library();
    (void)(host_ ? acl.aclrtFreeHost(raw) : acl.aclrtFree(raw));
  }
  Status zero(void* data, size_t bytes) override {
    if (host_) {
      std::memset(data, 0, bytes);
      return Status::ok();
    }
    const Library& acl = context_->library();
    ASSIGN_OR_RETURN(const auto stream, AscendStream::make(context_));
    RETURN_IF_ERROR(acl.check(acl.aclrtMemsetAsync(data, bytes, 0, bytes, stream->native()), "zero new memory"));
    return stream->synchronize();
  }

  std::shared_ptr<Context> context_;
  bool host_;
};

class AscendDevice final : public Device {
 public:
  AscendDevice(DeviceInfo info, std::shared_ptr<Context> context)
      : info_(std::move(info)),
        context_(std::move(context)),
        resources_(std::make_shared<GraphResources>(context_)),
        pool_(context_, false, info_.memory_bytes),
        host_pool_(context_, true, SIZE_MAX / 4) {
    if (const Communicator* ranks = context_->communicator()) shared_.emplace(ranks->member().region());
  }

  const DeviceInfo& info() const override { return info_; }
  MemoryPool& pool() override { return pool_; }
  MemoryPool& host_pool() override { return host_pool_; }
  MemoryPool* between_ranks() override { return shared_ ? &*shared_ : nullptr; }
  Result<std::unique_ptr<Stream>> make_stream() override {
    ASSIGN_OR_RETURN(auto stream, AscendStream::make(context_));
    return std::unique_ptr<Stream>(std::move(stream));
  }
  Result<std::unique_ptr<Event>> make_event() override {
    ASSIGN_OR_RETURN(auto event, AscendEvent::make(context_, true));
    return std::unique_ptr<Event>(std::move(event));
  }
  std::optional<double> between_us(const Event& from, const Event& to) const override {
    float ms = 0;
    const int code = context_->library().aclrtEventElapsedTime(&ms, static_cast<const AscendEvent&>(from).native(),
                                                               static_cast<const AscendEvent&>(to).native());
    return code == ACL_SUCCESS ? std::optional(static_cast<double>(ms) * 1e3) : std::nullopt;
  }
  std::optional<double> clock_us() const override {
    const Library& acl = context_->library();
    if (!acl.ascendSimHostMicros) return std::nullopt;
    return acl.ascendSimHostMicros();
  }
  std::string clock_note() const override {
    const Library& acl = context_->library();
    return acl.ascendSimAssumptions ? acl.ascendSimAssumptions() : "";
  }
  Result<std::unique_ptr<DeviceGraph>> capture(Stream& stream, const std::function<Status(Recorder&)>& body) override {
    return capture_graph(resources_, static_cast<AscendStream&>(stream), body);
  }
  std::vector<OwnCheck> own_checks() override { return card_checks(context_, pool_); }
  const std::shared_ptr<Context>& context() const { return context_; }
  QueueBudget budget() const { return resources_->budget(); }

 private:
  DeviceInfo info_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<GraphResources> resources_;
  AscendPool pool_;
  AscendPool host_pool_;
  std::optional<SharedPool> shared_;  // where there are several ranks
};

std::vector<std::string> notes_of(const Context& context) {
  std::vector<std::string> notes = context.library().report();
  const std::vector<std::string> absent = context.operators().missing();
  if (absent.empty()) notes.emplace_back("operators not there: none");
  for (const std::string& name : absent)
    notes.push_back(fmt::format("operator not there: {}: {}", name, purpose_of(name)));
  notes.push_back(fmt::format("attention: {}", context.fused_attention()
                                                   ? "FusedInferAttentionScoreV3"
                                                   : "PromptFlashAttentionV3 and IncreFlashAttentionV4"));
  return notes;
}

}  // namespace

Result<AscendParts> make_ascend_device(const AscendOptions& options) {
  ASSIGN_OR_RETURN(auto library, Library::open(options.runtime));
  uint32_t count = 0;
  const Status counted = library->check(library->aclrtGetDeviceCount(&count), "count the devices");
  if (!counted.is_ok() || count == 0)
    return error(Code::Unsupported, "no Ascend device: {}; see `npu-smi info`",
                 counted.is_ok() ? "the driver knows of none" : counted.message());
  AscendParts parts;
  const ranks::World world = options.member ? options.member->world() : ranks::World{};
  if (world.local_size > static_cast<int>(count))
    return invalid("`tp_size` {}: {} Ascend device{} visible here (ASCEND_RT_VISIBLE_DEVICES); allowed{}: 1 to {}",
                   world.size, count, count == 1 ? " is" : "s are", world.one_host() ? "" : " of this host", count);
  if (options.index + world.local_size > static_cast<int>(count))
    return invalid(
        "`dp_size`: replica {} would be on device {}, and {} visible here (ASCEND_RT_VISIBLE_DEVICES); "
        "allowed: 1 to {}",
        options.index, options.index, count == 1 ? "1 is" : fmt::format("{} are", count),
        static_cast<int>(count) / world.local_size);
  parts.context = std::make_shared<Context>(library, options.fused_attention, options.index + world.local_rank);
  RETURN_IF_ERROR(parts.context->attach());
  size_t free = 0, total = 0;
  RETURN_IF_ERROR(library->check(library->aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "ask for the device's memory"));
  RETURN_IF_ERROR(check_start(*parts.context, free, total));
  if (options.member) RETURN_IF_ERROR(parts.context->join(options.member, options.dispatch));
  DeviceInfo info;
  info.kind = DeviceKind::Ascend;
  info.isa = parts.context->soc();
  info.name = fmt::format("{}, CANN {}{}", info.isa, library->version(),
                          library->simulated() ? " (simulated: no NPU computes, times are a model's)" : "");
  info.memory_bytes = total;
  info.free_bytes = free;
  info.host_visible = false;
  info.asynchronous = true;
  info.free_patches = false;  // a task group is nine places of a queue
  info.skips_negative_slots = false;
  info.row_invariant = false;  // attention of one row is batched (BSND), of several a row of tokens (TND)
  info.computes = library->computes();
  int64_t cache_bytes = 0;
  const bool known = library->aclGetDeviceCapability &&
                     library->aclGetDeviceCapability(static_cast<uint32_t>(options.index + world.local_rank),
                                                     ACL_DEVICE_INFO_L2_SIZE, &cache_bytes) == ACL_SUCCESS;
  info.read_ahead = read_ahead_of(info.isa, library->aclrtCmoAsync != nullptr, known ? cache_bytes : 0);
  info.notes = notes_of(*parts.context);
  parts.device = std::make_unique<AscendDevice>(std::move(info), parts.context);
  return parts;
}

std::shared_ptr<Context> context_of(const Device& device) {
  const auto* mine = dynamic_cast<const AscendDevice*>(&device);
  return mine ? mine->context() : nullptr;
}

std::optional<QueueBudget> queue_budget(const Device& device) {
  const auto* mine = dynamic_cast<const AscendDevice*>(&device);
  return mine ? std::optional(mine->budget()) : std::nullopt;
}

}  // namespace reprise::ascend
