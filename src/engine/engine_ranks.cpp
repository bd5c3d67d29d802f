// The step over ranks: the front tells what runs, the followers run exactly that.
#include <algorithm>
#include <filesystem>

#include "engine/engine.h"
#include "engine/rank_cards.h"
#include "passes/shard_over_ranks.h"

namespace reprise::engine {

using ranks::StepMessage;

constexpr size_t kMostReason = 1024;  // of a card

// Rows whose logits came whole to every rank: those that are asked for, and those that were not to be drawn without.
Status Engine::count_gathered(const LiveSizes& live, StepOutput output) {
  if (!options_.member || output == StepOutput::NextTokens || output == StepOutput::Pooled) return Status::ok();
  const auto rows = static_cast<uint64_t>(live.value[models::kLogitRows]);
  if (rank_draws_ && output == StepOutput::Drawn) return Status::ok();  // draw_over_ranks() has counted
  const GraphOutput* merged = nullptr;
  for (const GraphOutput& o : outputs_.program()->graph().outputs())
    if (o.name == kMergedDraws) merged = &o;
  if (output != StepOutput::Drawn || !merged) {
    counters_.logits_gathered += rows;
    return Status::ok();
  }
  ASSIGN_OR_RETURN(const TensorView v, outputs_.of_program(merged->name));
  RETURN_IF_ERROR(outputs_.arrived());
  const auto* tokens = static_cast<const int32_t*>(v.data);
  counters_.logits_gathered += static_cast<uint64_t>(std::count(tokens, tokens + v.elements(), kUndecidedToken));
  return Status::ok();
}

// A model and what drafts for it are followed by one loop.
Status Engine::publish(StepMessage message, std::span<const uint8_t> staged) {
  message.draft = drafts_for_another_ ? 1 : 0;
  return options_.member->publish(message, staged);
}

// Steps that run beside the next one may not have been taken yet.
Status Engine::tell_followers(const StepMessage& message) {
  RETURN_IF_ERROR(options_.member->await_followers());
  RETURN_IF_ERROR(publish(message));
  return options_.member->await_followers();
}

// Every rank has its own columns of the vocabulary's logits, and all find out alike which tokens are left to them.
Status Engine::make_rank_draws(const ProgramBuilder& builder) {
  if (!options_.member || !builder.returns(kOwnLogits)) return Status::ok();
  MemoryPool* between = platform_.device->between_ranks();
  if (!between) between = &platform_.device->shared_pool();
  const int size = options_.member->world().size;
  std::vector<int64_t> borders{0};
  for (int rank = 0; rank < size; ++rank) {
    const Cut cut = drawn_columns(files_.config.fields.vocab_size, {.rank = rank, .size = size});
    borders.push_back(cut.first + cut.count);
  }
  ASSIGN_OR_RETURN(rank_draws_, RankDraws::make(options_.member, *between, std::move(borders)));
  return Status::ok();
}

bool Engine::draws_beside(const Draw& draw) const {
  return sampling_ && (!rank_draws_ || RankDraws::leaves_none(draw, files_.config.fields.vocab_size));
}

bool Engine::drawn_by_hosts(const Flight& f) const {
  return rank_draws_ && is_sampled(f.output) && std::any_of(f.items.begin(), f.items.end(), [&](const StepItem& i) {
           return i.draw && !draws_beside(*i.draw);
         });
}

Status Engine::draw_over_ranks(const LiveSizes& live, StepOutput output) {
  if (!rank_draws_ || !is_sampled(output)) return Status::ok();
  const int64_t rows = live.value[models::kLogitRows];
  const int32_t* known = nullptr;
  if (sampling_) {
    ASSIGN_OR_RETURN(const TensorView tokens, outputs_.of_program(output_name(output)));
    RETURN_IF_ERROR(outputs_.arrived());
    known = static_cast<const int32_t*>(tokens.data);
  }
  DrawnRows& drawn = outputs_.drawn();
  const size_t first = drawn.tokens.size();
  drawn.add(rows, known);
  if (std::find(drawn.tokens.begin() + static_cast<ptrdiff_t>(first), drawn.tokens.end(), kUndecidedToken) ==
      drawn.tokens.end())
    return Status::ok();
  ASSIGN_OR_RETURN(const TensorView own, outputs_.of_program(kOwnLogits));
  RETURN_IF_ERROR(outputs_.arrived());
  const uint64_t before = rank_draws_->whole_rows();
  RETURN_IF_ERROR(rank_draws_->draw({static_cast<const float*>(own.data), stage().ints(models::kDrawsInput),
                                     stage().ints(models::kEditsInput), stage().ints(models::kEditWordsInput)},
                                    first, drawn));
  if (output == StepOutput::Drawn) counters_.logits_gathered += rank_draws_->whole_rows() - before;
  return Status::ok();
}

Status Engine::run_here(const StepPlan& plan, size_t phase, const LiveSizes& live, StepOutput output,
                        const Fault* flip) {
  RETURN_IF_ERROR(launch_here(plan, phase, live, output, flip));
  return draw_over_ranks(live, output);
}

Status Engine::launch_here(const StepPlan& plan, size_t phase, const LiveSizes& live, StepOutput output,
                           const Fault* flip) {
  StepRunner& runner = *runners_[phase];
  if (flip && flip->is_of(options_.member ? options_.member->world().rank : 0))
    return run_with_flip(*flip, runner, live, output);
  RETURN_IF_ERROR(runner.run(plan, live.value[models::kTokens], live, *stream_, output));
  outputs_.ran(runner.last_program());
  return Status::ok();
}

Status Engine::run_on_all(const StepPlan& plan, size_t phase, const LiveSizes& live, StepOutput output,
                          const Fault* flip) {
  if (!options_.member) return run_here(plan, phase, live, output, flip);
  ranks::Member& member = *options_.member;
  RETURN_IF_ERROR(member.await_followers());
  staging_.show();
  StepMessage message{.kind = StepMessage::Kind::Step,
                      .phase = static_cast<uint8_t>(phase),
                      .plan = static_cast<uint8_t>(plan.kind),
                      .output = static_cast<uint8_t>(output),
                      .size = plan.size,
                      .live = live};
  if (flip) {
    message.flips = flip->kind == FaultKind::Hang ? 2 : 1;
    message.rank = flip->rank.value_or(-1);
    message.node = flip->node ? static_cast<int64_t>(*flip->node) : -1;
  }
  RETURN_IF_ERROR(publish(message, staging_.shared()));
  if (Status ran = run_here(plan, phase, live, output, flip); !ran.is_ok()) {
    member.abort(fmt::format("rank 0: {}", ran.message()));
    return member.lost();
  }
  return member.await_followers();  // no rank reads any more what the next step writes
}

Status Engine::tell_stop() {
  RETURN_IF_ERROR(options_.member->await_followers());
  return publish({.kind = StepMessage::Kind::Stop});
}

// Followers read the adapter's files by themselves: each has columns of its own. What one of them could not read is the
// front's error, and the adapter is loaded nowhere.
Status Engine::tell_adapter(const PreparedAdapter* adapter, int32_t slot) {
  if (!adapter) return tell_followers({.kind = StepMessage::Kind::Unload, .size = slot});
  ranks::Member& member = *options_.member;
  RETURN_IF_ERROR(member.await_followers());
  RETURN_IF_ERROR(publish({.kind = StepMessage::Kind::Load, .size = slot}));
  RETURN_IF_ERROR(member.show(std::filesystem::absolute(adapter->source).parent_path().string()).status());
  ASSIGN_OR_RETURN(const std::vector<std::string> found, member.show(""));
  RETURN_IF_ERROR(member.await_followers());
  for (size_t rank = 0; rank < found.size(); ++rank)
    if (!found[rank].empty()) return invalid("rank {}: {}", rank, found[rank]);
  return Status::ok();
}

Status Engine::follow_adapter(const StepMessage& m) {
  const auto slot = static_cast<int32_t>(m.size);
  if (m.kind == StepMessage::Kind::Unload) return adapters_.holds(slot) ? adapters_.unload(slot) : Status::ok();
  ranks::Member& member = *options_.member;
  ASSIGN_OR_RETURN(const std::vector<std::string> cards, member.show(""));
  const auto load = [&]() -> Status {
    ASSIGN_OR_RETURN(const checkpoint::LoraAdapter adapter, checkpoint::LoraAdapter::open(cards[0]));
    ASSIGN_OR_RETURN(const PreparedAdapter prepared, adapters_.prepare(adapter));
    ASSIGN_OR_RETURN(const int32_t here, adapters_.load(prepared));
    return here == slot ? Status::ok() : error(Code::Internal, "slot {} is free here, and not {}", here, slot);
  };
  const Status loaded = load();
  return member.show(loaded.is_ok() ? "" : loaded.message().substr(0, kMostReason)).status();
}

// A step in flight: followers have taken its inputs when they answer, and compute it behind the one before.
Status Engine::tell_beside(const Flight& f, int slot) {
  RETURN_IF_ERROR(options_.member->await_followers());  // they have the inputs of the step before
  staging_.show();
  return publish({.kind = StepMessage::Kind::Step,
                  .phase = static_cast<uint8_t>(phase_of(f.items)),
                  .plan = static_cast<uint8_t>(f.plan.kind),
                  .output = static_cast<uint8_t>(f.output),
                  .beside = 1,
                  .slot = static_cast<uint8_t>(slot),
                  .size = f.plan.size,
                  .live = f.live},
                 staging_.shared());
}

// Tokens that this rank's device has from the step before, by the marks in their places.
Status Engine::feed_marked_tokens(const LiveSizes& live) {
  const std::span<int32_t> tokens =
      stage().ints(models::kTokensInput).first(static_cast<size_t>(live.value[models::kTokens]));
  for (size_t i = 0; i < tokens.size();) {
    if (tokens[i] >= 0) {
      ++i;
      continue;
    }
    const int64_t from = fed_row(tokens[i]);
    size_t end = i + 1;
    while (end < tokens.size() && tokens[end] == fed_mark(from + static_cast<int64_t>(end - i))) ++end;
    const auto count = static_cast<int64_t>(end - i);
    if (!fed_tokens_.data || from + count > fed_tokens_.elements())
      return error(Code::Internal, "rows {} to {} of the step before are wanted, which gave {} tokens", from,
                   from + count, fed_tokens_.data ? fed_tokens_.elements() : 0);
    staging_.feed(models::kTokensInput, static_cast<int64_t>(i), static_cast<const int32_t*>(fed_tokens_.data) + from,
                  count);
    i = end;
  }
  return Status::ok();
}

Status Engine::follow_beside(const StepMessage& m, const StepPlan& plan) {
  if (m.slot >= stages_.size() || stages_.size() < 2)
    return error(Code::Internal, "a step in slot {} of {}", m.slot, stages_.size());
  StepMarks& marks = flights_.marks_in(m.slot);
  if (!marks.end) {
    ASSIGN_OR_RETURN(marks.end, platform_.device->make_event());
  } else {
    RETURN_IF_ERROR(stream_->synchronize(*marks.end));  // the slot's last inputs have been read
  }
  staging_.select(m.slot);
  staging_.take();
  stage().see_part(options_.graph.pipeline.ranks.part(), pool_sizes());
  RETURN_IF_ERROR(feed_marked_tokens(m.live));
  StepRunner& runner = *runners_[m.phase];
  const int64_t rows = m.live.value[models::kTokens];
  const auto output = static_cast<StepOutput>(m.output);
  RETURN_IF_ERROR(runner.launch(plan, rows, m.live, *stream_, output));
  runner.finished(plan, rows, std::nullopt);
  outputs_.ran(runner.last_program());
  RETURN_IF_ERROR(stream_->record(*marks.end));
  marks.ticket = options_.member->message();
  fed_tokens_ = {};
  if (output == StepOutput::NextTokens || is_sampled(output)) {
    ASSIGN_OR_RETURN(fed_tokens_, outputs_.program()->output(output_name(output)));
  }
  ++counters_.steps;
  return Status::ok();
}

Status Engine::follow_step(const StepMessage& m) {
  if (m.plan > static_cast<uint8_t>(StepPlan::Kind::Eager) || m.output > static_cast<uint8_t>(StepOutput::Drawn) ||
      m.phase >= phases().size())
    return error(Code::Internal, "a step of phase {}, plan {} and output {}", m.phase, m.plan, m.output);
  RETURN_IF_ERROR(rebind_if_moved());
  StepPlan plan;
  plan.kind = static_cast<StepPlan::Kind>(m.plan);
  plan.size = m.size;
  plan.reason = "as the front runs it";
  if (m.beside != 0) return follow_beside(m, plan);
  if (stages_.size() > 1) RETURN_IF_ERROR(stream_->synchronize());  // of a step beside this one
  staging_.select(0);
  staging_.take();
  stage().see_part(options_.graph.pipeline.ranks.part(), pool_sizes());
  outputs_.drawn().clear();
  Fault flip;
  flip.kind = m.flips == 2 ? FaultKind::Hang : FaultKind::BitFlip;
  if (m.node >= 0) flip.node = static_cast<uint32_t>(m.node);
  if (m.rank >= 0) flip.rank = m.rank;
  RETURN_IF_ERROR(run_here(plan, m.phase, m.live, static_cast<StepOutput>(m.output), m.flips != 0 ? &flip : nullptr));
  RETURN_IF_ERROR(stream_->synchronize());  // what was staged may be overwritten afterwards
  ++counters_.steps;
  return Status::ok();
}

// The front keeps the ledger of pages; here every page counts as taken, so that its bytes stay.
Status Engine::take_all_pages() { return pool_.allocate(pool_.free_pages()).status(); }

Status Engine::follow_resize(int64_t tokens) {
  std::vector<kv::PageId> gone;  // the front has nothing in them
  for (int64_t p = kv::pages_for(tokens) + 1; p <= pool_.total_pages(); ++p) gone.push_back(static_cast<kv::PageId>(p));
  pool_.release(gone);
  RETURN_IF_ERROR(resize_kv(tokens));
  return take_all_pages();
}

// The front waits for a step of the model before it has anything drafted, and for drafts before the model's next step.
// Here one stream waits for the other for the same reasons: a head reads rows that the model keeps, and both meet the
// other ranks by one communicator.
Status Engine::obey(const StepMessage& m) {
  if (m.draft != 0) {
    if (!draft_) return error(Code::Internal, "a message for what drafts, and nothing does");
    StepMessage mine = m;
    mine.draft = 0;
    RETURN_IF_ERROR(stream_->synchronize());
    return draft_->obey(mine);
  }
  if (draft_ && m.kind != StepMessage::Kind::Await) RETURN_IF_ERROR(draft_->stream_->synchronize());
  switch (m.kind) {
    case StepMessage::Kind::Step: return follow_step(m);
    case StepMessage::Kind::CopyPage:
      if (std::min(m.from, m.to) < 1 || std::max(m.from, m.to) > pool_.total_pages() || m.from == m.to)
        return error(Code::Internal, "a copy of page {} to {} of {}", m.from, m.to, pool_.total_pages());
      if (m.part != options_.graph.pipeline.ranks.part()) return Status::ok();
      return enqueue_copy(static_cast<kv::PageId>(m.from), static_cast<kv::PageId>(m.to));
    case StepMessage::Kind::Resize: return follow_resize(m.size);
    case StepMessage::Kind::Check:
    case StepMessage::Kind::Compare:
    case StepMessage::Kind::Retire: return follow_check(m);
    case StepMessage::Kind::Load:
    case StepMessage::Kind::Unload: return follow_adapter(m);
    case StepMessage::Kind::Await:
      for (Engine* e : {this, draft_.get()}) {
        if (!e) continue;
        for (const StepMarks& marks : e->flights_.marks())
          if (marks.end && marks.ticket == static_cast<Ticket>(m.size))
            RETURN_IF_ERROR(e->stream_->synchronize(*marks.end));
      }
      return Status::ok();
    case StepMessage::Kind::Stop: break;
  }
  return error(Code::Internal, "a message of kind {}", static_cast<int>(m.kind));
}

Status Engine::follow() {
  if (front()) return error(Code::Internal, "the front is no follower");
  ranks::Member& member = *options_.member;
  while (true) {
    ASSIGN_OR_RETURN(const StepMessage message, member.next());
    if (message.kind == StepMessage::Kind::Stop) {
      member.done();  // the front may go on with another engine
      return stream_->synchronize();
    }
    Status done = obey(message);
    if (!done.is_ok()) {
      member.abort(fmt::format("rank {}: {}", member.world().rank, done.message()));
      return done;
    }
    if (message.kind != StepMessage::Kind::Await) member.done();
  }
}

}  // namespace reprise::engine
