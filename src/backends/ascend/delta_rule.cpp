#include "backends/ascend/delta_rule.h"

#include <algorithm>
#include <bit>

#include "kv/state_pool.h"

namespace reprise::ascend {
namespace {

Status run_rule(const DeltaRule& s, const RuleRows& in, int64_t rows, int64_t sequences, const void* lengths,
                const void* slots, void* out, Launch& l) {
  const auto keys = [&](const void* data) { return l.tensor(data, s.type, {rows, s.key_heads, s.key}); };
  const auto values = [&](const void* data) { return l.tensor(data, s.type, {rows, s.heads, s.value}); };
  return l.run(l.ops().delta_rule, keys(in.q), keys(in.k), values(in.v), l.tensor(in.beta, s.type, {rows, s.heads}),
               l.tensor(s.states.data, DType::F32, {s.states.slots, s.heads, s.value, s.key}),
               l.tensor(lengths, DType::I32, {sequences}), l.tensor(slots, DType::I32, {rows}),
               l.tensor(in.g, DType::F32, {rows, s.heads}), nullptr, nullptr, s.scale, values(out));
}

// Each state to where the step leaves it. In pieces, as states are large.
Status copy_states(const States& s, Launch& l) {
  constexpr int64_t kMostBytes = int64_t{32} << 20;
  const int64_t bytes = s.size * static_cast<int64_t>(sizeof(float)),
                most = std::clamp<int64_t>(kMostBytes / bytes, 1, s.sequences);
  void* piece = words(most * s.size, l);
  for (int64_t from = 0; from < s.sequences; from += most) {
    const int64_t n = std::min(most, s.sequences - from);
    aclTensor* some = l.tensor(piece, DType::F32, {n, s.size});
    RETURN_IF_ERROR(l.run(l.ops().index_select, s.pool(l), 0,
                          l.tensor(const_behind(s.read, from, DType::I32), DType::I32, {n}), some));
    RETURN_IF_ERROR(l.run(l.ops().scatter_nd, s.pool(l),
                          l.tensor(const_behind(s.write, from, DType::I32), DType::I32, {n, 1}), some));
  }
  return Status::ok();
}

// Windows of rows: each is of one sequence, and a sequence's last one ends with rows that change nothing, as keys,
// values and weights are 0 there. Windows of no sequence, and those rows, leave their state in the scratch slot.
struct Windows {
  int64_t rows, count;  // of a window; windows
  const void* places;   // i32 [step's rows]: row among those of all windows; rows of no sequence lie behind them
  const void* slots;    // i32 [rows of all windows, then as many as the step has]
  int64_t all() const { return rows * count; }
};

// f32 [R + 1]: how much further on the rows of each sequence lie, and those of no sequence.
Result<const void*> further_on(const DeltaRule& s, int64_t window, int64_t all, Launch& l) {
  const int64_t r = s.sequences;
  ASSIGN_OR_RETURN(const void* borders, borders_in_floats(s.borders, l));
  void *counts = words(r, l), *sums = words(r, l), *further = words(r + 1, l);
  const auto each = [&](const void* data, int64_t from, int64_t n) {
    return l.tensor(const_behind(data, from, DType::F32), DType::F32, {n});
  };
  // Windows of each sequence: (rows + window - 1) / window, cut to a whole number.
  RETURN_IF_ERROR(l.run(l.ops().add, each(borders, 1, r), each(borders, 0, r), l.number(-1), each(counts, 0, r)));
  RETURN_IF_ERROR(l.run(l.ops().adds, each(counts, 0, r), l.number(static_cast<float>(window - 1)), l.number(1),
                        each(counts, 0, r)));
  RETURN_IF_ERROR(
      l.run(l.ops().muls, each(counts, 0, r), l.number(1.0F / static_cast<float>(window)), each(counts, 0, r)));
  ASSIGN_OR_RETURN(const void* whole, whole_numbers(counts, r, l));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(whole, DType::I32, {r}), ACL_FLOAT, each(counts, 0, r)));
  RETURN_IF_ERROR(l.run(l.ops().running_sum, each(counts, 0, r), 0, ACL_FLOAT, each(sums, 0, r)));
  RETURN_IF_ERROR(l.run(l.ops().zero, each(further, 0, r + 1)));
  if (r > 1)
    RETURN_IF_ERROR(
        l.run(l.ops().muls, each(sums, 0, r - 1), l.number(static_cast<float>(window)), each(further, 1, r - 1)));
  RETURN_IF_ERROR(
      l.run(l.ops().adds, each(further, r, 1), l.number(static_cast<float>(all)), l.number(1), each(further, r, 1)));
  RETURN_IF_ERROR(
      l.run(l.ops().add, each(further, 0, r + 1), each(borders, 0, r + 1), l.number(-1), each(further, 0, r + 1)));
  return further;
}

Result<Windows> cut_into_windows(const DeltaRule& s, Launch& l) {
  static_assert(kv::kScratchSlot == 0, "slots begin as zeros");
  constexpr int64_t kMostRows = 8;  // of a sequence; and no more than there are states
  const RecurrentConstants constants(l.constant());
  const int64_t t = s.rows, r = s.sequences;
  Windows w{};
  w.rows = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(kMostRows, s.states.slots))));
  w.count = (t + r * (w.rows - 1) + w.rows - 1) / w.rows;
  ASSIGN_OR_RETURN(const void* further, further_on(s, w.rows, w.all(), l));
  ASSIGN_OR_RETURN(const void* counts, begun(s.borders, true, constants, l));
  void *sequence = words(t, l), *places = words(t, l), *writes = words(r + 1, l), *of_rows = words(t, l),
       *slots = words(w.all() + t, l);
  const auto floats = [&](const void* data, int64_t n) { return l.tensor(data, DType::F32, {n}); };
  // count - 1, held down to R for rows of no sequence.
  RETURN_IF_ERROR(l.run(l.ops().muls, floats(counts, t), l.number(-1), floats(sequence, t)));
  RETURN_IF_ERROR(l.run(l.ops().adds, floats(sequence, t), l.number(1), l.number(1), floats(sequence, t)));
  RETURN_IF_ERROR(l.run(l.ops().clamp_min, floats(sequence, t), l.number(-static_cast<float>(r)), floats(sequence, t)));
  RETURN_IF_ERROR(l.run(l.ops().muls, floats(sequence, t), l.number(-1), floats(sequence, t)));
  ASSIGN_OR_RETURN(const void* sequences, whole_numbers(sequence, t, l));
  RETURN_IF_ERROR(
      l.run(l.ops().index_select, floats(further, r + 1), 0, l.tensor(sequences, DType::I32, {t}), floats(places, t)));
  RETURN_IF_ERROR(
      l.run(l.ops().add, floats(places, t), floats(constants.numbers(), t), l.number(1), floats(places, t)));
  ASSIGN_OR_RETURN(w.places, whole_numbers(places, t, l));
  RETURN_IF_ERROR(l.run(l.ops().zero, floats(writes, r + 1)));
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(s.states.write, DType::I32, {r}), ACL_FLOAT, floats(writes, r)));
  RETURN_IF_ERROR(
      l.run(l.ops().index_select, floats(writes, r + 1), 0, l.tensor(sequences, DType::I32, {t}), floats(of_rows, t)));
  RETURN_IF_ERROR(l.run(l.ops().zero, floats(slots, w.all() + t)));
  RETURN_IF_ERROR(l.run(l.ops().scatter_nd, floats(slots, w.all() + t), l.tensor(w.places, DType::I32, {t, 1}),
                        floats(of_rows, t)));
  ASSIGN_OR_RETURN(w.slots, whole_numbers(slots, w.all() + t, l));
  return w;
}

Status rule_of_prompts(const DeltaRule& s, const RuleRows& in, void* out, Launch& l) {
  const RecurrentConstants constants(l.constant());
  ASSIGN_OR_RETURN(const Windows w, cut_into_windows(s, l));
  const int64_t t = s.rows, all = w.all() + t;
  // Rows of `width` numbers at their places, zeros elsewhere.
  const auto spread = [&](const void* rows, int64_t width, DType type) -> Result<const void*> {
    void* wide = l.scratch(static_cast<size_t>(all * width) * size_of(type));
    RETURN_IF_ERROR(l.run(l.ops().zero, l.tensor(wide, type, {all, width})));
    RETURN_IF_ERROR(l.run(l.ops().scatter_nd, l.tensor(wide, type, {all, width}),
                          l.tensor(w.places, DType::I32, {t, 1}), l.tensor(rows, type, {t, width})));
    return wide;
  };
  const int64_t keys = s.key_heads * s.key, values = s.heads * s.value;
  RuleRows wide{};
  ASSIGN_OR_RETURN(wide.q, spread(in.q, keys, s.type));
  ASSIGN_OR_RETURN(wide.k, spread(in.k, keys, s.type));
  ASSIGN_OR_RETURN(wide.v, spread(in.v, values, s.type));
  ASSIGN_OR_RETURN(wide.beta, spread(in.beta, s.heads, s.type));
  ASSIGN_OR_RETURN(wide.g, spread(in.g, s.heads, DType::F32));
  void* results = l.scratch(static_cast<size_t>(all * values) * size_of(s.type));
  const auto results_from = [&](int64_t row, int64_t n) {
    return l.tensor(const_behind(results, row * values, s.type), s.type, {n, values});
  };
  // Rows of no sequence get nothing of it.
  RETURN_IF_ERROR(l.run(l.ops().zero, results_from(w.all(), t)));
  const void* lengths = constants.power_of_two(std::countr_zero(static_cast<uint64_t>(w.rows)));
  for (int64_t n = 0; n < w.count; ++n) {
    const int64_t row = n * w.rows;
    const RuleRows some{const_behind(wide.q, row * keys, s.type), const_behind(wide.k, row * keys, s.type),
                        const_behind(wide.v, row * values, s.type), const_behind(wide.beta, row * s.heads, s.type),
                        const_behind(wide.g, row * s.heads, DType::F32)};
    RETURN_IF_ERROR(run_rule(s, some, w.rows, 1, lengths, const_behind(w.slots, row, DType::I32),
                             const_cast<void*>(const_behind(results, row * values, s.type)), l));
  }
  return l.run(l.ops().index_select, results_from(0, all), 0, l.tensor(w.places, DType::I32, {t}),
               l.tensor(out, s.type, {t, values}));
}

}  // namespace

Status DeltaRule::run(const RuleRows& in, void* out, Launch& l) const {
  RETURN_IF_ERROR(copy_states(states, l));
  if (rows != sequences) return rule_of_prompts(*this, in, out, l);
  return run_rule(*this, in, rows, rows, RecurrentConstants(l.constant()).whole_ones(), states.write, out, l);
}

int64_t way_of_states(const OpCall& c) {
  const Dim slots = c.in[0].shape[0];
  return slots.factor << 16 | static_cast<int64_t>(c.in[1].dtype) << 8 | static_cast<int64_t>(slots.symbol);
}
int64_t slots_of(Launch& l) { return l.size(Dim(l.way() >> 16, static_cast<SymbolId>(l.way() & 0xFF))); }
DType type_of_rows(const Launch& l) { return static_cast<DType>(l.way() >> 8 & 0xFF); }

Status want_few_rows(int64_t rows, int64_t sequences) {
  if (rows + sequences < Context::kRows) return Status::ok();
  return error(Code::Unsupported, "{} rows in one step, at most {}", rows, Context::kRows - sequences - 1);
}

Status accepts_states(const OpCall& c, size_t first) {
  if (c.in.size() > first + 3)
    return error(Code::Unsupported, "no operator of the vendor keeps what drafts change beside a state");
  return Status::ok();
}

Status accepts_rule(const OpCall& c) {
  if (c.in[1].dtype != DType::BF16)
    return error(Code::Unsupported, "the vendor's delta rule takes bf16, not {}", dtype_name(c.in[1].dtype));
  return accepts_states(c, 6);
}

}  // namespace reprise::ascend
