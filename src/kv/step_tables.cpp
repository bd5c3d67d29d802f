#include "kv/step_tables.h"

#include <algorithm>

namespace reprise::kv {
namespace {

Status check_part(const SequencePart& p, size_t index, const StepBuffers& out) {
  const int64_t end = p.cached + p.count;
  if (p.cached < 0 || p.count < 0 || end > static_cast<int64_t>(p.tokens.size()))
    return invalid("sequence {}: tokens [{}, {}) of {} do not exist", index, p.cached, end, p.tokens.size());
  if (pages_for(end) > static_cast<int64_t>(p.pages.size()))
    return invalid("sequence {}: {} tokens need {} pages, it has {}", index, end, pages_for(end), p.pages.size());
  if (pages_for(end) > out.columns)
    return invalid("sequence {}: {} tokens need {} pages, the page table has {} columns", index, end, pages_for(end),
                   out.columns);
  return Status::ok();
}

}  // namespace

int32_t slot_of_nobody(int64_t row, const StepBuffers& out) {
  return out.skips_negative_slots ? -1 : static_cast<int32_t>(kScratchPage * kPageTokens + row % kPageTokens);
}

Result<StepCounts> fill(std::span<const SequencePart> parts, const StepBuffers& out) {
  StepCounts n;
  if (parts.size() > out.context_lens.size())
    return invalid("{} sequences in one step, at most {} fit", parts.size(), out.context_lens.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    RETURN_IF_ERROR(check_part(parts[i], i, out));
    n.tokens += parts[i].count;
  }
  if (n.tokens > static_cast<int64_t>(out.tokens.size()))
    return invalid("{} tokens in one step, at most {} fit", n.tokens, out.tokens.size());
  n.sequences = static_cast<int64_t>(parts.size());

  int64_t row = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const SequencePart& p = parts[i];
    const int64_t end = p.cached + p.count;
    out.cu_seqlens[i] = static_cast<int32_t>(row);
    out.context_lens[i] = static_cast<int32_t>(end);
    int32_t* table = out.page_table.data() + static_cast<int64_t>(i) * out.columns;
    const int64_t used = pages_for(end);
    std::copy_n(p.pages.begin(), used, table);
    std::fill(table + used, table + out.columns, kScratchPage);
    for (int64_t t = p.cached; t < end; ++t, ++row) {
      out.tokens[row] = p.tokens[t];
      out.positions[row] = static_cast<int32_t>(t);
      out.slots[row] = static_cast<int32_t>(p.pages[t / kPageTokens] * kPageTokens + t % kPageTokens);
    }
  }
  std::fill(out.cu_seqlens.begin() + n.sequences, out.cu_seqlens.end(), static_cast<int32_t>(row));
  std::fill(out.context_lens.begin() + n.sequences, out.context_lens.end(), 0);
  std::fill(out.page_table.begin() + n.sequences * out.columns, out.page_table.end(), kScratchPage);
  std::fill(out.tokens.begin() + row, out.tokens.end(), 0);
  std::fill(out.positions.begin() + row, out.positions.end(), 0);
  const auto bound = static_cast<int64_t>(out.slots.size());
  for (int64_t t = row; t < bound; ++t) out.slots[t] = slot_of_nobody(t, out);
  return n;
}

}  // namespace reprise::kv
