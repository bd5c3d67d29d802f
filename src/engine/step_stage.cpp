#include "engine/step_stage.h"

#include <algorithm>

#include "engine/phases.h"

namespace reprise::engine {

using models::InputSpec;
using models::StepPart;

Status StepStage::attach(Staging& staging, const models::StepSpec& step, int64_t vocab, const DeviceInfo& device,
                         int slot) {
  staging_ = &staging;
  token_shares_ = step.token_shares;
  inputs_.clear();
  for (const InputSpec& spec : step.inputs) {
    const auto view = staging.input(spec.name, slot);
    if (!view.is_ok()) continue;
    inputs_.push_back({&spec, *view});
    const Dim rows = spec.type.shape[0];
    if (!rows.is_constant()) bounds_.value[rows.symbol] = view->size[0] / rows.factor;
    if (spec.type.shape.rank() > 1 && spec.name == models::kPageTableInput) columns_ = view->size[1];
    if (spec.used && is_float(spec.type.dtype)) hidden_ = view->size[1];  // rows of images
    draws_ |= spec.name == models::kDrawsInput;
    keeps_drafts_ |= spec.name == models::kStateDraftsInput;
    if (spec.name == models::kPartRowsInput) world_parts_ = view->size[0] - 1;
  }
  vocab_ = vocab;
  skips_negative_slots_ = device.skips_negative_slots;
  parts_.reserve(static_cast<size_t>(bounds_.value[models::kSequences]));
  return Status::ok();
}

std::span<int32_t> StepStage::ints(std::string_view name) const {
  for (const Input& in : inputs_)
    if (in.spec->name == name) return models::ints(in.view);
  return {};
}

Status StepStage::check(size_t index, const StepPart& p) const {
  const int64_t end = p.cached + p.count, drafts = static_cast<int64_t>(p.drafts.size()),
                size = static_cast<int64_t>(p.tokens.size());
  if (p.count - drafts < 1 || end - drafts > size)
    return invalid("sequence {}: {} tokens of a sequence with {} uncached ones", index, p.count - drafts,
                   size - p.cached);
  if (drafts > 0 && end - drafts != size)
    return error(Code::Internal, "sequence {}: drafts behind token {} of {}", index, end - drafts, size);
  const bool with_state = p.state_write != kv::kScratchSlot && !keeps_drafts_;
  if (drafts > 0 && (with_state || p.tokens.back() == Sequence::kPending))
    return error(Code::Internal, "sequence {}: drafts {}", index,
                 with_state ? "behind a state without room for them" : "behind a token to come");
  for (int64_t t = p.cached; t < end; ++t) {
    const int32_t token = p.token(t);
    const bool to_come = token == Sequence::kPending && t + 1 == size;
    if (token >= vocab_ || (token < 0 && !to_come))
      return invalid("token id {} is outside the vocabulary of {}", token, vocab_);
  }
  if (p.draw && !draws_) return error(Code::Internal, "this model draws no tokens");
  if (p.draw && p.logit_rows < 1 + drafts)
    return error(Code::Internal, "a token is to be drawn from a row without logits");
  const int64_t pages = kv::pages_for(end);
  if (pages > static_cast<int64_t>(p.pages.size()))
    return invalid("sequence {}: {} tokens need {} pages, it has {}", index, end, pages, p.pages.size());
  if (columns_ > 0 && pages > columns_)
    return invalid("sequence {}: {} tokens need {} pages, the page table has {} columns", index, end, pages, columns_);
  return Status::ok();
}

Result<LiveSizes> StepStage::fill(std::span<const StepItem> items, const PoolSizes& pools) {
  parts_.clear();
  LiveSizes live;
  auto& size = live.value;
  for (const StepItem& item : items) {
    const Sequence& s = *item.sequence;
    StepPart p{s.tokens(),
               item.drafts,
               s.pages(),
               s.cached(),
               item.count,
               item.logits,
               item.part,
               s.adapter(),
               item.draw ? &*item.draw : nullptr,
               item.draw && item.edits.any() ? &item.edits : nullptr};
    p.second_kind = s.second_kind();
    p.images = s.images();
    p.source = item.source;
    if (s.states()) {
      p.state_read = s.state_read();
      p.state_write = s.states().next();
      p.came_true = s.came_true();
    }
    RETURN_IF_ERROR(check(parts_.size(), p));
    if (p.part < (parts_.empty() ? 0 : parts_.back().part) || p.part >= std::max<int64_t>(1, world_parts_))
      return error(Code::Internal, "sequence {}: part {} of {} does not come here", parts_.size(), p.part,
                   std::max<int64_t>(1, world_parts_));
    size[models::kTokens] += p.count;
    size[models::kLogitRows] += p.logit_rows;
    parts_.push_back(p);
  }
  size[models::kSequences] = static_cast<int64_t>(parts_.size());
  size[models::kCuSeqlens] = size[models::kSequences] + 1;
  size[models::kPoolPages] = pools.all_pages();
  size[models::kStateSlots] = pools.slots;
  size[models::kSourcePages] = pools.source_pages + 1;
  size[models::kSharedTokens] = models::in_equal_shares(size[models::kTokens], token_shares_);
  const auto fits = [&](models::StepSymbol of, std::string_view what) {
    const int64_t bound = bounds_.value[of];
    return bound == 0 || size[of] <= bound ? Status::ok()
                                           : invalid("{} {} in one step, at most {} fit", size[of], what, bound);
  };
  RETURN_IF_ERROR(fits(models::kTokens, "tokens"));
  RETURN_IF_ERROR(fits(models::kSequences, "sequences"));
  int64_t most = bounds_.value[models::kLogitRows];
  // Only the programs of steps with drafts have room for more rows with logits than sequences.
  if (bounds_.value[models::kSequences] > 0 && !kPhases[kVerifyPhase].takes(items))
    most = std::min(most, bounds_.value[models::kSequences]);
  if (size[models::kLogitRows] > most)
    return invalid("more than {} rows with logits in one step (`max_running_requests` sets this)", most);
  pools_ = pools;
  const models::StepRows rows = rows_of(parts_);
  if (const int64_t words = rows.edit_words(); words > edit_words())
    return error(Code::Internal, "no room for {} words of edits", words);
  size[models::kEditedRows] = rows.edited();
  for (const Input& in : inputs_) {
    in.spec->producer(rows, in.view);
    if (in.spec->used) staging_->use(in.spec->name, in.spec->used(rows));
  }
  see_part(0, pools);
  return live;
}

models::StepRows StepStage::rows_of(std::span<const models::StepPart> parts) const {
  return {.parts = parts,
          .skips_negative_slots = skips_negative_slots_,
          .vocabulary = vocab_,
          .hidden = hidden_,
          .pages = pools_.pages,
          .scratch_pages = pools_.scratch};
}

void StepStage::see_part(int part, const PoolSizes& pools) {
  pools_ = pools;
  const auto own_rows = ints(models::kOwnRowsInput);
  if (own_rows.empty()) return;
  // Slots are staged for all parts as X, and for this one as own_X.
  constexpr std::string_view kPrefix = "own_";
  for (const Input& in : inputs_) {
    const std::string_view name = in.spec->name;
    if (!in.spec->destination || !name.starts_with(kPrefix)) continue;
    models::see_part({ints(models::kPartRowsInput), ints(name.substr(kPrefix.size())), ints(models::kCuSeqlensInput),
                      models::ints(in.view), ints(models::kOwnCuSeqlensInput), own_rows},
                     part, rows_of({}));
  }
}

void StepStage::drop(int64_t r, int64_t first, int64_t count) {
  const models::StepRows none = rows_of({});
  for (const Input& in : inputs_) {
    if (!in.spec->destination) continue;
    const auto out = models::ints(in.view);
    if (in.spec->type.shape[0].symbol == models::kSequences) out[r] = none.no_state_slot();
    if (in.spec->type.shape[0].symbol == models::kTokens)
      for (int64_t row = first; row < first + count; ++row) out[row] = none.no_page_slot(row);
  }
  for (int32_t& token : ints(models::kTokensInput).subspan(static_cast<size_t>(first), static_cast<size_t>(count)))
    token = 0;
}

}  // namespace reprise::engine
