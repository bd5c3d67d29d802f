#include "engine/faults.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "engine/phases.h"
#include "models/model.h"

namespace reprise::engine {
namespace {

struct Name {
  FaultKind kind;
  std::string_view name;
};
constexpr Name kNames[] = {{FaultKind::PaddingLeak, "padding-leak"},
                           {FaultKind::StaleInput, "stale-input"},
                           {FaultKind::WrongLength, "wrong-length"},
                           {FaultKind::BitFlip, "bit-flip"},
                           {FaultKind::Alloc, "alloc"},
                           {FaultKind::KernelError, "kernel-error"},
                           {FaultKind::Hang, "hang"}};

template <typename T>
bool parse_number(std::string_view text, T& out) {
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  return ec == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Where parts of a world share out the rows, one more behind all others is of the last part that has any, and of those
// behind it that have none.
void add_row_of_part(int part, int64_t tokens, const StepStage& stage) {
  const auto part_rows = stage.ints(models::kPartRowsInput);
  for (size_t p = static_cast<size_t>(part) + 1; p < part_rows.size(); ++p)
    part_rows[p] = static_cast<int32_t>(tokens + 1);
}

// A row beyond the batch takes part, and its slot is that of a token cached earlier.
bool leak_padding(std::span<const StepItem> items, const StepStage& stage, LiveSizes& live) {
  const auto all_tokens = stage.ints(models::kTokensInput), slots = stage.ints(models::kSlotsInput),
             cu_seqlens = stage.ints(models::kCuSeqlensInput);
  const int64_t tokens = live.value[models::kTokens];
  const int64_t each = kPhases[phase_of(items, false)].each;
  if (each > 1) return false;
  const bool decode = each == 1;
  const StepItem* victim = nullptr;
  for (const StepItem& item : items)
    if (!victim && item.part == items.back().part && item.sequence->cached() > 0) victim = &item;
  if (!victim || slots.empty() || tokens >= static_cast<int64_t>(slots.size())) return false;
  if (decode && live.value[models::kCuSeqlens] >= static_cast<int64_t>(cu_seqlens.size())) return false;
  const int64_t past = victim->sequence->cached() - 1;
  const int64_t page = victim->sequence->pages()[static_cast<size_t>(past / kv::kPageTokens)];
  all_tokens[tokens] = 1;
  slots[tokens] = static_cast<int32_t>(page * kv::kPageTokens + past % kv::kPageTokens);
  live.value[models::kTokens] = tokens + 1;
  if (decode) {
    const int64_t row = live.value[models::kSequences]++;
    live.value[models::kCuSeqlens]++;
    cu_seqlens[row + 1] = static_cast<int32_t>(tokens + 1);
  }
  add_row_of_part(victim->part, tokens, stage);
  return true;
}

bool bring_back_tokens(std::span<const int32_t> old, const StepStage& stage, const LiveSizes& live) {
  const auto now = stage.ints(models::kTokensInput).first(static_cast<size_t>(live.value[models::kTokens]));
  const size_t n = std::min(old.size(), now.size());
  if (std::equal(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(n), old.begin())) return false;
  std::copy_n(old.begin(), n, now.begin());
  return true;
}

bool shorten(const StepStage& stage, const LiveSizes& live) {
  const auto lens = stage.ints(models::kLengthsInput), starts = stage.ints(models::kCuSeqlensInput);
  for (int64_t r = 0; r < live.value[models::kSequences] && !lens.empty(); ++r) {
    if (lens[r] <= starts[r + 1] - starts[r]) continue;  // queries must keep a position
    --lens[r];
    return true;
  }
  return false;
}

}  // namespace

std::string_view fault_name(FaultKind kind) {
  for (const Name& n : kNames)
    if (n.kind == kind) return n.name;
  return "?";
}

Result<Fault> parse_fault(std::string_view text) {
  const auto at = text.find('@');
  const std::string_view kind = text.substr(0, at);
  const Name* known = std::find_if(std::begin(kNames), std::end(kNames), [&](const Name& n) { return n.name == kind; });
  if (known == std::end(kNames) || at == std::string_view::npos)
    return invalid(
        "`inject_fault` \"{}\" is not of the form KIND@STEP[:NODE][/RANK]; kinds: padding-leak, stale-input, "
        "wrong-length, bit-flip, alloc, kernel-error, hang",
        text);
  Fault f;
  f.kind = known->kind;
  std::string_view rest = text.substr(at + 1);
  if (const auto slash = rest.find('/'); slash != std::string_view::npos) {
    int rank = 0;
    if (f.kind != FaultKind::BitFlip && f.kind != FaultKind::Alloc && f.kind != FaultKind::Hang)
      return invalid("`inject_fault` \"{}\": only bit-flip, alloc and hang take a rank; others are of all ranks", text);
    if (!parse_number(rest.substr(slash + 1), rank) || rank < 0)
      return invalid("`inject_fault` \"{}\": the rank is not a number from 0", text);
    f.rank = rank;
    rest = rest.substr(0, slash);
  }
  const auto colon = rest.find(':');
  if (!parse_number(rest.substr(0, colon), f.step) || f.step < 1)
    return invalid("`inject_fault` \"{}\": the step is not a number from 1", text);
  if (colon == std::string_view::npos) return f;
  uint32_t node = 0;
  if (f.kind != FaultKind::BitFlip && f.kind != FaultKind::KernelError)
    return invalid("`inject_fault` \"{}\": only bit-flip and kernel-error take a node", text);
  if (!parse_number(rest.substr(colon + 1), node))
    return invalid("`inject_fault` \"{}\": the node is not a number (reprise graph dump shows them)", text);
  f.node = node;
  return f;
}

bool FaultInjector::fails_capture() {
  ++captures_;
  return std::erase_if(faults_, [&](const Fault& f) { return f.kind == FaultKind::Alloc && f.step == captures_; }) > 0;
}

void FaultInjector::spoil(int64_t step, std::span<const StepItem> items, const StepStage& stage, LiveSizes& live) {
  std::erase_if(faults_, [&](const Fault& f) {
    if (f.step > step) return false;
    bool done = false;
    if (f.kind == FaultKind::PaddingLeak) done = leak_padding(items, stage, live);
    if (f.kind == FaultKind::StaleInput) done = bring_back_tokens(last_tokens_, stage, live);
    if (f.kind == FaultKind::WrongLength) done = shorten(stage, live);
    if (done) log::warning("injected fault: {} in step {}", fault_name(f.kind), step);
    return done;
  });
}

std::optional<Fault> FaultInjector::take_launch_fault(int64_t step) {
  auto it = std::find_if(faults_.begin(), faults_.end(), [&](const Fault& f) {
    return f.step <= step &&
           (f.kind == FaultKind::BitFlip || f.kind == FaultKind::KernelError || f.kind == FaultKind::Hang);
  });
  if (it == faults_.end()) return std::nullopt;
  const Fault f = *it;
  faults_.erase(it);
  log::warning("injected fault: {} in step {}", fault_name(f.kind), step);
  return f;
}

void FaultInjector::remember(const StepStage& stage, const LiveSizes& live) {
  const auto now = stage.ints(models::kTokensInput).first(static_cast<size_t>(live.value[models::kTokens]));
  last_tokens_.assign(now.begin(), now.end());
}

}  // namespace reprise::engine
