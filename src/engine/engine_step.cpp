// Running steps: staging, the choice of graphs, checks and what follows from them.
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "base/elapsed.h"
#include "base/half.h"
#include "base/log.h"
#include "engine/engine.h"
#include "passes/house_passes.h"
#include "passes/shard_over_ranks.h"

namespace reprise::engine {
namespace {

using Clock = std::chrono::steady_clock;

// One bit of the first element: a middle one, so that a float stays finite and an id stays small.
Status flip_bit(Device& device, Stream& stream, const TensorView& v) {
  HostCopy element;
  ASSIGN_OR_RETURN(void* bytes, element.fetch(device, stream, v.data, size_of(v.dtype)));
  if (v.dtype == DType::F32)
    static_cast<uint8_t*>(bytes)[2] ^= 0x40;
  else
    static_cast<uint8_t*>(bytes)[0] ^= 0x01;
  return element.put_back(device, stream, v.data, size_of(v.dtype));
}

}  // namespace

EngineCounters Engine::counters() const {
  EngineCounters c = counters_;
  for (const PhaseSpec& phase : phases()) c.captures += runner(phase.name)->captures();
  return c;
}

// Every sequence of the step has slots for its states.
Status Engine::hold_states(std::span<const StepItem> items) {
  for (const StepItem& item : items)
    if (has_states() && !item.sequence->states()) {
      ASSIGN_OR_RETURN(item.sequence->states(), states_.allocate());
    }
  return Status::ok();
}

// Staged, chosen, checked and computed when it returns.
Status Engine::run(std::span<const StepItem> items, StepOutput output) {
  device_s_ = 0;
  gap_us_.reset();
  outputs_.begin();
  RETURN_IF_ERROR(rebind_if_moved());
  RETURN_IF_ERROR(hold_states(items));
  ASSIGN_OR_RETURN(const LiveSizes live, stage().fill(items, pool_sizes()));
  return run_planned(items, live, output);
}

// A staged step as its runner plans it. What cannot be cut runs as it is.
Status Engine::run_planned(std::span<const StepItem> items, const LiveSizes& live, StepOutput output) {
  ASSIGN_OR_RETURN(StepPlan plan, runner_of(items).plan(live.value[models::kTokens]));
  if (plan.kind == StepPlan::Kind::Split && whole_prompts())
    plan = {StepPlan::Kind::Eager, 0, 0, "a text whose rows see each other is not cut"};
  if (plan.kind == StepPlan::Kind::Split) {
    if (items.size() > 1 || items[0].drafts.empty()) return run_split(items, plan.first, output);
    plan = {StepPlan::Kind::Eager, 0, 0, "a sequence with drafts is not cut"};
  }
  return run_captured(plan, items, live, output);
}

// The first `first` tokens of the batch, then the rest, each as a step of its own. A sequence with drafts stays whole:
// what comes behind them is computed with them.
Status Engine::run_split(std::span<const StepItem> items, int64_t first, StepOutput output) {
  outputs_.expect_parts();
  std::vector<StepItem> part, rest;
  for (const StepItem& item : items) {
    int64_t take = std::min(first, item.count);
    if (!item.drafts.empty() && take < item.count) take = part.empty() ? item.count : 0;
    first = take < item.count ? 0 : std::max<int64_t>(0, first - take);
    StepItem head = item, tail = item;
    head.count = take;
    tail.count = item.count - take;
    tail.logits = std::min(item.logits, tail.count);
    head.logits = item.logits - tail.logits;
    if (tail.count > 0) head.draw.reset();
    if (head.count > 0) part.push_back(head);
    if (tail.count > 0) rest.push_back(tail);
  }
  for (const auto& half : {part, rest}) {
    if (half.empty()) continue;
    ASSIGN_OR_RETURN(const LiveSizes live, stage().fill(half, pool_sizes()));
    RETURN_IF_ERROR(run_planned(half, live, output));
  }
  return Status::ok();
}

// One staged step.
Status Engine::run_captured(const StepPlan& plan, std::span<const StepItem> items, LiveSizes live, StepOutput output) {
  const size_t phase = phase_of(items);
  const bool replay = plan.kind == StepPlan::Kind::Replay;
  const bool checked = replay && check_ && check_->due();
  if (checked) {
    RETURN_IF_ERROR(begin_check(plan, phase, items, output));
  }
  std::optional<Fault> fault;
  if (faults_.any() && replay) {
    const auto number = static_cast<int64_t>(counters_.steps) + 1;
    faults_.spoil(number, items, stage(), live);
    // What follows from the rows of a step follows from one more, too.
    live.value[models::kSharedTokens] = models::in_equal_shares(live.value[models::kTokens], step_.token_shares);
    stage().see_part(0, pool_sizes());
    fault = faults_.take_launch_fault(number);
  }
  if (hook_)
    hook_({stage(),
           items,
           live,
           phase,
           {arena_.as<uint8_t>(), arena_.size()},
           pool_,
           states_,
           [this](void* data, uint8_t value, size_t bytes) {
             const Status filled = fill_bytes(*platform_.device, *stream_, data, value, bytes);
             CHECK(filled.is_ok(), "a check cannot write device memory: {}", filled.message());
           }});

  const auto begin = Clock::now();
  const Device& device = *platform_.device;
  if (!gap_us_ && finished_us_ > 0) gap_us_ = now_us(device) - finished_us_;
  if (fault) {
    RETURN_IF_ERROR(run_with_fault(*fault, plan, phase, live, output));
  } else {
    RETURN_IF_ERROR(run_on_all(plan, phase, live, output));
  }
  device_s_ += seconds_since(begin);
  finished_us_ = now_us(device);
  if (faults_.any()) faults_.remember(stage(), live);
  if (checked) RETURN_IF_ERROR(end_check(plan, phase, items, output));
  for (const StepItem& item : items) item.sequence->advance(item.own());
  if (expert_use_.layers() > 0) RETURN_IF_ERROR(expert_use_.add_step(outputs_));
  RETURN_IF_ERROR(count_gathered(live, output));
  return outputs_.in_parts() ? outputs_.add_part(output) : Status::ok();
}

// As if the replay had gone wrong by itself.
Status Engine::run_with_fault(const Fault& fault, StepPlan plan, size_t phase, const LiveSizes& live,
                              StepOutput output) {
  if (fault.kind == FaultKind::KernelError) {
    RETURN_IF_ERROR(retire_on_all(phase, plan.size, false, "injected fault: a kernel failed during replay"));
    plan = {StepPlan::Kind::Eager, 0, 0, "an injected kernel error"};
    return run_on_all(plan, phase, live, output);
  }
  return run_on_all(plan, phase, live, output, &fault);
}

Status Engine::run_with_flip(const Fault& fault, StepRunner& runner, const LiveSizes& live, StepOutput output) {
  while (fault.kind == FaultKind::Hang) std::this_thread::sleep_for(std::chrono::hours(1));
  const int64_t size = live.value[models::kTokens];
  CompiledModel& m = runner.model(size);
  outputs_.ran(&m);
  uint32_t last = 0;
  for (auto& p : m.pieces())
    if ((p.heads & head_of(output)) != 0) last = p.thunks.back().node;
  const uint32_t node = fault.node.value_or(last);
  bool hit = false;
  Status flipped;
  RETURN_IF_ERROR(m.run(live, *stream_, head_of(output), [&](const Thunk& t, const Node& n) {
    if (t.node != node) return;
    hit = true;
    flipped = flip_bit(*platform_.device, *stream_, m.view(n.result()));
  }));
  RETURN_IF_ERROR(flipped);
  if (!hit)
    return invalid("`inject_fault` bit-flip: node {} launches nothing (reprise graph dump shows the nodes)", node);
  return Status::ok();
}

uint64_t Engine::source_generation() const { return source_ ? source_->pool_.generation() : 0; }

bool Engine::caches_moved() const {
  return pool_.generation() != bound_generation_ || source_generation() != bound_source_;
}

Status Engine::rebind_if_moved() {
  if (!caches_moved()) return Status::ok();
  const auto external = caches();
  const PoolSizes pools = pool_sizes();
  LiveSizes now;
  now.value[models::kPoolPages] = pools.all_pages();
  now.value[models::kSourcePages] = pools.source_pages + 1;
  for (size_t p = 0; p < phases().size(); ++p) RETURN_IF_ERROR(runners_[p]->rebind(external, now));
  if (check_) RETURN_IF_ERROR(check_->rebind(external));
  bound_generation_ = pool_.generation();
  bound_source_ = source_generation();
  ++counters_.rebinds;
  log::info("the KV cache has moved ({} tokens now); captured graphs read the new place",
            pool_.total_pages() * kv::kPageTokens);
  return Status::ok();
}

Status Engine::enqueue_copy(kv::PageId from, kv::PageId to) {
  return pool_.copy_page(
      from, to, [&](void* dst, const void* src, size_t n) { return stream_->copy(dst, src, n, Copy::DeviceToDevice); });
}

Status Engine::copy_page_of(int part, kv::PageId from, kv::PageId to) {
  if (options_.member)
    RETURN_IF_ERROR(tell_followers({.kind = ranks::StepMessage::Kind::CopyPage, .from = from, .to = to, .part = part}));
  if (part != 0) return Status::ok();
  if (overlaps()) page_copies_.emplace_back(from, to);
  RETURN_IF_ERROR(enqueue_copy(from, to));
  // A head reads and leaves rows in these pages on a stream of its own, perhaps before the next step of this engine.
  return draft_ && draft_->reads_source() ? stream_->synchronize() : Status::ok();
}

Status Engine::resize_kv(int64_t tokens) {
  RETURN_IF_ERROR(resize_here(tokens));
  if (options_.member && front())
    return tell_followers({.kind = ranks::StepMessage::Kind::Resize, .size = options_.max_total_tokens});
  return Status::ok();
}

Status Engine::resize_here(int64_t tokens) {
  if (tokens < 1) return invalid("a KV cache for {} tokens; at least 1 is needed", tokens);
  for (Flight& f : flights_.all())
    if (f.ticket != 0) finish(f);
  const int64_t pages = kv::pages_for(tokens);
  for (kv::KvPool& ledger : ledgers_)
    for (int64_t p = pages + 1; p <= ledger.total_pages(); ++p)
      if (ledger.in_use(static_cast<kv::PageId>(p)))
        return error(Code::Busy, "KV page {} of another part is in use, a pool of {} pages would lose it", p, pages);
  const auto copy = [&](void* to, const void* from, size_t n) {
    return stream_->copy(to, from, n, Copy::DeviceToDevice);
  };
  RETURN_IF_ERROR(pool_.resize(platform_.device->pool(), pages, copy, [&] { return stream_->synchronize(); }));
  for (kv::KvPool& ledger : ledgers_) RETURN_IF_ERROR(ledger.resize(platform_.device->pool(), pages, {}));
  RETURN_IF_ERROR(stream_->synchronize());
  options_.max_total_tokens = pool_.total_pages() * kv::kPageTokens;
  return Status::ok();
}

}  // namespace reprise::engine
