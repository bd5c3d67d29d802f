// The caches of an engine, its staged inputs and arena, and the capture of its steps.
#include "engine/engine.h"

#include <algorithm>
#include <chrono>

#include "base/elapsed.h"
#include "base/log.h"
#include "engine/fusion_bound.h"
#include "engine/learned.h"
#include "engine/memory_rules.h"
#include "engine/rank_cards.h"

namespace reprise::engine {

Status Engine::make_caches(const ProgramBuilder& builder) {
  MemoryPool& memory = platform_.device->pool();
  if (options_.max_loras > 0) {
    ASSIGN_OR_RETURN(adapters_, AdapterSlots::create(memory, *stream_, builder.adapters(), options_.max_loras,
                                                     options_.max_lora_rank));
    if (options_.member && front())
      adapters_.tell_by([this](const PreparedAdapter* a, int32_t slot) { return tell_adapter(a, slot); });
  }
  if (step_.has_source()) {
    ASSIGN_OR_RETURN(no_source_, memory.allocate(static_cast<size_t>(files_.spec->source_width(files_.config.fields)) *
                                                     kv::kPageTokens * size_of(*options_.dtype),
                                                 "rows of no model"));
  }
  const kv::KvShape shape = builder.caches();
  std::vector<kv::StateCache> states = builder.states();
  const auto in_flight = platform_.device->info().asynchronous ? 2 : 1;
  const int each = step_.slots_per_sequence(in_flight);
  const size_t state_bytes =
      states.empty() ? 0 : kv::StatePool::bytes_for(states, max_step_rows(), each, max_step_rows());
  const int64_t scratch = scratch_pages(builder);
  ASSIGN_OR_RETURN(int64_t pages, choose_kv_pages(shape, state_bytes, scratch));
  if (options_.member) {
    ASSIGN_OR_RETURN(pages, least_of_all(*options_.member, pages));
  }
  ASSIGN_OR_RETURN(pool_, kv::KvPool::create(memory, shape, pages, scratch));
  ASSIGN_OR_RETURN(ledgers_, ledgers(pages));
  options_.max_total_tokens = pages * kv::kPageTokens;
  if (!states.empty()) {
    ASSIGN_OR_RETURN(states_, kv::StatePool::create(memory, std::move(states), max_step_rows(), each, max_step_rows()));
  }
  return front() ? Status::ok() : take_all_pages();
}

// Where no two rows may write the same place: for the padding of a captured step, for a step that is measured with rows
// of no sequence alone, for those of other parts of a world, and for rows that a head does not leave.
int64_t Engine::scratch_pages(const ProgramBuilder& builder) const {
  if (platform_.device->info().skips_negative_slots) return 1;
  int64_t rows = builder.most_padding();
  if (options_.graph.choose_streams || options_.graph.choose_prefetch) rows = std::max(rows, max_step_rows());
  if (options_.sequence_parts > 1 || step_.has_source()) rows = std::max(rows, max_step_tokens());
  return std::max<int64_t>(1, kv::pages_for(rows));
}

// Where a device's time is a model's there is nothing to warm, and each run costs what the arithmetic takes here.
int Engine::usual_warmups() const {
  if (platform_.device->info().live_sizes || platform_.device->info().records_cold) return 0;
  if (!platform_.device->clock_us()) return 2;
  log::notice("the device is simulated: no warm-ups before captures (`graph_warmups` 2 runs those of a device)");
  return 0;
}

// Ranks would have to agree on what was measured.
void Engine::choose_streams() {
  GraphOptions& g = options_.graph;
  if (!options_.member) return;
  g.choose_prefetch = false;
  if (!g.choose_streams) return;
  log::notice("`graph_streams` auto: one stream: ranks would have to measure together");
  g.choose_streams = false;
  g.pipeline.streams = 1;
}

Status Engine::compile(std::unique_ptr<ProgramBuilder> made) {
  ProgramBuilder& builder = *made;
  MemoryPool& memory = platform_.device->pool();
  if (options_.graph.warmups < 0) options_.graph.warmups = usual_warmups();
  if (ProductWays* products = platform_.device->product_ways()) products->keep_in(options_.graph.plan_cache);
  faults_ = FaultInjector(options_.graph.faults, options_.member ? options_.member->world().rank : 0);
  // Slots for runs of steps where there can be any.
  if (!platform_.device->info().asynchronous || step_.has_states() || options_.member ||
      options_.graph.verify_replay > 0)
    options_.steps_ahead = 1;
  flights_ = Flights(static_cast<size_t>(1 + options_.steps_ahead));
  builder.declare_inputs(staging_, caches());
  RETURN_IF_ERROR(staging_.allocate(*platform_.device, static_cast<int>(flights_.most())));
  stages_ = std::vector<StepStage>(static_cast<size_t>(staging_.slots()));
  ASSIGN_OR_RETURN(arena_, memory.allocate(builder.arena_bytes(), "activations"));
  ASSIGN_OR_RETURN(exchange_, platform_.device->shared_pool().allocate(builder.exchange_bytes(), "exchange"));
  RETURN_IF_ERROR(make_rank_draws(builder));
  for (int slot = 0; slot < staging_.slots(); ++slot) {
    StepStage& stage = stages_[static_cast<size_t>(slot)];
    RETURN_IF_ERROR(stage.attach(staging_, step_, files_.config.fields.vocab_size, platform_.device->info(), slot));
  }
  if (!options_.captures_later) return capture(builder);
  uncaptured_ = std::move(made);
  return Status::ok();
}

Status Engine::capture(ProgramBuilder& builder) {
  const auto start = std::chrono::steady_clock::now();
  ProgramBuilder::Bindings bindings;
  bindings.params = &params_;
  bindings.external = caches();
  bindings.staging = &staging_;
  bindings.stream = stream_.get();
  bindings.faults = &faults_;
  bindings.pools = pool_sizes();
  bindings.progress = options_.progress;
  bindings.arena = arena_.data();
  bindings.exchange = exchange_.data();
  bindings.arena_epoch = &arena_epoch_;
  bound_generation_ = pool_.generation();
  bound_source_ = source_generation();
  if (front() || staging_.is_copied())
    for (StepStage& stage : stages_) RETURN_IF_ERROR(stage.clear(pool_sizes()));
  if (options_.member) RETURN_IF_ERROR(options_.member->agree("memory that ranks share", builder.exchange_text()));
  if (tower_) RETURN_IF_ERROR(tower_->bind(params_, *platform_.device, *stream_, options_.graph.warmups));
  // Where graphs take scarce room on the device, decode comes first: it needs little of it and gains most.
  const bool scarce = !platform_.device->info().free_patches || platform_.device->info().graphs_take_memory;
  std::vector<size_t> order{kAnyPhase, 0};
  if (builder.phases() > kVerifyPhase) order.insert(order.begin() + 1, kVerifyPhase);
  if (scarce) std::reverse(order.begin(), order.end());
  for (const size_t p : order) {
    ASSIGN_OR_RETURN(runners_[p], builder.build(p, bindings));
  }
  if (options_.graph.verify_replay > 0) {
    ReplayCheck::Shadows shadows;
    std::vector<const CompiledModel*> plans;
    for (size_t p = 0; p < phases().size(); ++p) {
      ASSIGN_OR_RETURN(shadows[p], builder.build_shadow(p, bindings));
      for (const CompiledModel* m : runners_[p]->models()) plans.push_back(m);
    }
    check_ = std::make_unique<ReplayCheck>(options_.graph.verify_replay, std::move(shadows), fusion_bound(plans));
    if (const FusionBound& b = check_->bound(); !b.exact())
      log::notice(
          "`verify_replay`: not exact on this device: {}; replays are compared bit for bit with the same "
          "passes run eagerly, and with the unfused run within {:.3g} of a row's root mean square",
          fmt::join(b.ops, ", "), b.relative);
  }
  for (size_t p = 0; p < phases().size(); ++p)
    runners_[p]->set_clock(options_.steps_ahead > 1 ? StepClock::Marks : StepClock::Host);
  if (!learned_file_.empty()) {
    if (const auto learned = load_learned(learned_file_); learned.is_ok()) {
      restore(*learned, runners_);
      drafts_ = learned->drafts;
    }
  }
  expert_use_.open(runners_.front()->model().graph(), options_.ep_size);
  if (ProductWays* products = platform_.device->product_ways()) products->keep();
  if (options_.member) RETURN_IF_ERROR(options_.member->agree("captured sizes", sizes_text(runners_)));
  times_.capture_s = seconds_since(start);
  std::string sizes;
  size_t graph_bytes = 0;
  for (size_t p = 0; p < phases().size(); ++p) {
    sizes += fmt::format("{}{} {} sizes", p == 0 ? "" : ", ", kPhases[p].name, runners_[p]->sizes().size());
    graph_bytes += runners_[p]->graph_bytes();
  }
  log::info("captured in {:.1f} ms: {}; graphs {:.2f} MB, shared activations {:.1f} MB", times_.capture_s * 1e3, sizes,
            static_cast<double>(graph_bytes) / 1e6, static_cast<double>(arena_.size()) / 1e6);
  return Status::ok();
}

}  // namespace reprise::engine
