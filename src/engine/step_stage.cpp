#include "engine/step_stage.h"

#include <algorithm>
#include <cstring>

#include "models/model.h"

namespace reprise::engine {

bool is_decode(const LiveSizes& live) { return live.value[models::kTokens] == live.value[models::kSequences]; }

Status StepStage::attach(Staging& staging, int64_t columns, int64_t vocab, const DeviceInfo& device, int slot) {
  auto ints = [&](std::string_view name) -> Result<std::span<int32_t>> {
    ASSIGN_OR_RETURN(TensorView v, staging.input(name, slot));
    return std::span<int32_t>(static_cast<int32_t*>(v.data), static_cast<size_t>(v.elements()));
  };
  buffers_.columns = columns;
  buffers_.skips_negative_slots = device.skips_negative_slots;
  vocab_ = vocab;
  ASSIGN_OR_RETURN(buffers_.tokens, ints("tokens"));
  ASSIGN_OR_RETURN(buffers_.positions, ints("positions"));
  ASSIGN_OR_RETURN(buffers_.slots, ints("slots"));
  ASSIGN_OR_RETURN(buffers_.page_table, ints("page_table"));
  ASSIGN_OR_RETURN(buffers_.context_lens, ints("context_lens"));
  ASSIGN_OR_RETURN(buffers_.cu_seqlens, ints("cu_seqlens"));
  ASSIGN_OR_RETURN(last_rows_, ints("last_rows"));
  draws_ = edits_ = edit_words_ = {};
  if (staging.input("draws", slot).is_ok()) {
    ASSIGN_OR_RETURN(draws_, ints("draws"));
  }
  if (staging.input("edits", slot).is_ok()) {
    ASSIGN_OR_RETURN(edits_, ints("edits"));
    ASSIGN_OR_RETURN(edit_words_, ints("edit_words"));
    staging_ = &staging;
  }
  parts_.reserve(buffers_.context_lens.size());
  return Status::ok();
}

Result<LiveSizes> StepStage::fill(std::span<const StepItem> items, int64_t pool_pages) {
  parts_.clear();
  std::fill(draws_.begin(), draws_.end(), 0);
  int64_t row = 0, wanted = 0, edited = 0, words = 0;
  for (const StepItem& item : items) {
    const Sequence& s = *item.sequence;
    if (item.count < 1 || item.count > s.uncached())
      return invalid("{} tokens of a sequence with {} uncached ones", item.count, s.uncached());
    const bool to_come = s.pending() && s.cached() + item.count == s.size();
    for (int64_t t = s.cached(); t < s.cached() + item.count - to_come; ++t)
      if (s.tokens()[t] < 0 || s.tokens()[t] >= vocab_)
        return invalid("token id {} is outside the vocabulary of {}", s.tokens()[t], vocab_);
    parts_.push_back({s.tokens(), s.pages(), s.cached(), item.count});
    const int64_t rows = item.logit_rows();
    if (wanted + rows > static_cast<int64_t>(last_rows_.size()))
      return invalid("more than {} rows with logits in one step (`max_running_requests` sets this)", last_rows_.size());
    for (int64_t i = item.count - rows; i < item.count; ++i) last_rows_[wanted++] = static_cast<int32_t>(row + i);
    if (item.draw) {
      if (draws_.empty()) return error(Code::Internal, "this model draws no tokens");
      if (rows == 0) return error(Code::Internal, "a token is to be drawn from a row without logits");
      Draw draw = *item.draw;
      if (item.edits.any()) {
        const int64_t more = item.edits.words(vocab_);
        if (words + more > edit_words()) return error(Code::Internal, "no room for {} words of edits", more);
        const LogitEdit e = item.edits.stage(static_cast<int32_t>(wanted - 1), vocab_, edit_words_, words);
        std::memcpy(&edits_[static_cast<size_t>(edited * kEditWords)], &e, sizeof e);
        draw.edited = static_cast<int32_t>(++edited);
        words += more;
      }
      std::memcpy(&draws_[static_cast<size_t>((wanted - 1) * kDrawWords)], &draw, sizeof draw);
    }
    row += item.count;
  }
  std::fill(last_rows_.begin() + wanted, last_rows_.end(), 0);
  ASSIGN_OR_RETURN(const kv::StepCounts n, kv::fill(parts_, buffers_));
  for (int32_t& token : buffers_.tokens.first(static_cast<size_t>(row)))
    if (token == Sequence::kPending) token = 0;
  LiveSizes live;
  live.value[models::kTokens] = n.tokens;
  live.value[models::kSequences] = n.sequences;
  live.value[models::kQueryBorders] = n.sequences + 1;
  live.value[models::kLogitRows] = wanted;
  live.value[models::kPoolPages] = pool_pages + 1;  // the scratch page
  live.value[models::kEditedRows] = edited;
  if (staging_) staging_->use("edit_words", words);
  return live;
}

void StepStage::drop_row(int64_t row) {
  buffers_.tokens[row] = 0;
  buffers_.slots[row] = kv::slot_of_nobody(row, buffers_);
}

}  // namespace reprise::engine
