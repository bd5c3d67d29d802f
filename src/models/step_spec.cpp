#include "models/step_spec.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "ops/core.h"

namespace reprise::models {
namespace {

// Calls f(part, t, row) for every token of the step; the number of rows.
template <typename F>
int64_t for_each_row(const StepRows& step, const F& f) {
  int64_t row = 0;
  for (const StepPart& p : step.parts)
    for (int64_t t = p.cached; t < p.cached + p.count; ++t) f(p, t, row++);
  return row;
}

// The rest of an input, from element `from` on.
void fill_rest(std::span<int32_t> out, int64_t from, int32_t value) { std::fill(out.begin() + from, out.end(), value); }

void tokens(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  const int64_t rows = for_each_row(step, [&](const StepPart& p, int64_t t, int64_t row) {
    // The embedding of an image's row is not used (models/image_step.h).
    out[row] = image_at(p.images, t) ? 0 : std::max(0, p.token(t));
  });
  fill_rest(out, rows, 0);
}

void positions(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  const int64_t rows =
      for_each_row(step, [&](const StepPart& p, int64_t t, int64_t row) { out[row] = position_of(p.images, t)[0]; });
  fill_rest(out, rows, 0);
}

void slots(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t row = for_each_row(step, [&](const StepPart& p, int64_t t, int64_t r) {
    out[r] = static_cast<int32_t>(p.pages[static_cast<size_t>(t / kPageTokens)] * kPageTokens + t % kPageTokens);
  });
  for (const auto bound = static_cast<int64_t>(out.size()); row < bound; ++row) out[row] = step.no_page_slot(row);
}

void page_table(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  const int64_t columns = view.size[1];
  int64_t at = 0;
  for (const StepPart& p : step.parts) {
    const int64_t used = kv::pages_for(p.cached + p.count);
    std::copy_n(p.pages.begin(), used, out.begin() + at);
    std::fill_n(out.begin() + at + used, columns - used, kv::kScratchPage);
    at += columns;
  }
  fill_rest(out, at, kv::kScratchPage);
}

void context_lens(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t r = 0;
  for (const StepPart& p : step.parts) out[r++] = static_cast<int32_t>(p.cached + p.count);
  fill_rest(out, r, 0);
}

void cu_seqlens(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t r = 0, row = 0;
  for (const StepPart& p : step.parts) {
    out[r++] = static_cast<int32_t>(row);
    row += p.count;
  }
  fill_rest(out, r, static_cast<int32_t>(row));
}

// The first row of each part, and where the last one ends; a part without sequences has none.
void part_rows(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  fill_rest(out, 0, 0);
  int64_t row = 0;
  for (const StepPart& p : step.parts) {
    row += p.count;
    fill_rest(out, p.part + 1, static_cast<int32_t>(row));
  }
}

// Until a rank makes its own of them no row is of any part.
void no_rows(const StepRows&, const TensorView& view) { fill_rest(ints(view), 0, 0); }

void adapter_ids(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  const int64_t rows = for_each_row(step, [&](const StepPart& p, int64_t, int64_t row) { out[row] = p.adapter; });
  fill_rest(out, rows, 0);
}

void last_rows(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t wanted = 0, end = 0;
  for (const StepPart& p : step.parts) {
    end += p.count;
    for (int64_t i = end - p.logit_rows; i < end; ++i) out[wanted++] = static_cast<int32_t>(i);
  }
  fill_rest(out, wanted, 0);
}

void draws(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  fill_rest(out, 0, 0);
  int64_t wanted = 0;
  int32_t edited = 0;
  for (const StepPart& p : step.parts) {
    wanted += p.logit_rows;
    for (int64_t i = 0; i < p.drawn_rows(); ++i) {
      Draw draw = *p.draw;
      draw.position += i;
      if (p.edits) draw.edited = ++edited;
      std::memcpy(&out[(wanted - p.drawn_rows() + i) * kDrawWords], &draw, sizeof draw);
    }
  }
}

// Calls f(edits, first row of logits, how many rows, number of the first of them, where their words begin) for every
// part with rows that are changed.
template <typename F>
void for_each_edit(const StepRows& step, const F& f) {
  int64_t wanted = 0, edited = 0, at = 0;
  for (const StepPart& p : step.parts) {
    wanted += p.logit_rows;
    if (!p.draw || !p.edits) continue;
    f(*p.edits, static_cast<int32_t>(wanted - p.drawn_rows()), p.drawn_rows(), edited, at);
    edited += p.drawn_rows();
    at += p.edits->words(step.vocabulary);
  }
}

void edits(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  fill_rest(out, 0, 0);
  for_each_edit(step, [&](const RowEdits& e, int32_t row, int64_t rows, int64_t number, int64_t at) {
    for (int64_t i = 0; i < rows; ++i) {
      const LogitEdit edit = e.describe(row + static_cast<int32_t>(i), step.vocabulary, at);
      std::memcpy(&out[(number + i) * kEditWords], &edit, sizeof edit);
    }
  });
}

void edit_words(const StepRows& step, const TensorView& view) {
  for_each_edit(step, [&](const RowEdits& e, int32_t, int64_t, int64_t, int64_t at) {
    e.write(ints(view).subspan(static_cast<size_t>(at)), step.vocabulary);
  });
}

void token_types(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  const int64_t rows =
      for_each_row(step, [&](const StepPart& p, int64_t t, int64_t row) { out[row] = t >= p.second_kind ? 1 : 0; });
  fill_rest(out, rows, 0);
}

void first_rows(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t wanted = 0, begin = 0;
  for (const StepPart& p : step.parts) {
    for (int64_t i = 0; i < p.logit_rows; ++i) out[wanted++] = static_cast<int32_t>(begin);
    begin += p.count;
  }
  fill_rest(out, wanted, 0);
}

void state_read(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t r = 0;
  for (const StepPart& p : step.parts) out[r++] = p.state_read;
  fill_rest(out, r, kv::kZeroSlot);
}

void state_write(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t r = 0;
  for (const StepPart& p : step.parts) out[r++] = p.state_write;
  fill_rest(out, r, step.no_state_slot());
}

void state_drafts(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int64_t r = 0;
  for (const StepPart& p : step.parts) {
    out[r++] = static_cast<int32_t>(p.came_true);
    out[r++] = static_cast<int32_t>(p.drafts.size());
  }
  fill_rest(out, r, 0);
}

bool change_token(const TensorView& in, int64_t r, const LiveSizes&) {
  int32_t& t = ints(in)[r];
  t = t > 0 ? t - 1 : 1;
  return true;
}

bool add_one(const TensorView& in, int64_t r, const LiveSizes&) { return ++ints(in)[r], true; }
// A slot that is one less: the token's key replaces that of the token before, so one key is wrong and one is missing. A
// length that is one less: a key is missing.
bool take_one(const TensorView& in, int64_t r, const LiveSizes&) { return --ints(in)[r], true; }
bool forget_first_page(const TensorView& in, int64_t r, const LiveSizes&) {
  ints(in)[r * in.size[1]] = kv::kScratchPage;
  return true;
}

bool ask_for_another_row(const TensorView& in, int64_t r, const LiveSizes& live) {
  const auto n = static_cast<int32_t>(live.value[kLogitRows]);
  if (n < 2) return false;
  ints(in)[r] = (ints(in)[r] + 1) % n;
  return true;
}

bool forget_state(const TensorView& in, int64_t r, const LiveSizes&) {
  ints(in)[r] = kv::kZeroSlot;
  return true;
}

}  // namespace

int32_t StepRows::no_page_slot(int64_t row) const {
  if (skips_negative_slots) return -1;
  const int64_t scratch = row / kPageTokens % scratch_pages;
  const int64_t page = scratch == 0 ? kv::kScratchPage : pages + scratch;
  return static_cast<int32_t>(page * kPageTokens + row % kPageTokens);
}

void see_part(const PartViews& v, int part, const StepRows& none) {
  const auto p = static_cast<size_t>(part);
  const int32_t first = v.part_rows[p], end = v.part_rows[p + 1];
  for (size_t row = 0; row < v.own_rows.size(); ++row) {
    const bool mine = static_cast<int32_t>(row) >= first && static_cast<int32_t>(row) < end;
    v.own_rows[row] = mine ? 1 : 0;
    v.own_slots[row] = mine ? v.slots[row] : none.no_page_slot(static_cast<int64_t>(row));
  }
  for (size_t i = 0; i < v.own_cu_seqlens.size(); ++i) v.own_cu_seqlens[i] = std::clamp(v.cu_seqlens[i], first, end);
}

int64_t StepRows::edited() const {
  int64_t rows = 0;
  for (const StepPart& p : parts) rows += p.edits ? p.drawn_rows() : 0;
  return rows;
}

int64_t StepRows::edit_words() const {
  int64_t words = 0;
  for_each_edit(*this, [&](const RowEdits& e, int32_t, int64_t, int64_t, int64_t) { words += e.words(vocabulary); });
  return words;
}

bool StepSpec::has_states() const {
  return std::any_of(caches.begin(), caches.end(),
                     [](const CacheSpec& c) { return c.kind == CacheSpec::Kind::PerSequence; });
}

bool StepSpec::has_source() const {
  return std::any_of(caches.begin(), caches.end(),
                     [](const CacheSpec& c) { return c.kind == CacheSpec::Kind::Source; });
}

int StepSpec::slots_per_sequence(int steps_in_flight) const {
  for (const CacheSpec& c : caches)
    if (c.kind == CacheSpec::Kind::PerSequence) return c.idempotent ? 1 : 1 + steps_in_flight;
  return 0;
}

Status StepSpec::check() const {
  std::set<std::string_view> names;
  std::optional<bool> idempotent;
  for (const InputSpec& i : inputs) {
    if (!names.insert(i.name).second) return error(Code::Internal, "the model declares {} twice", i.name);
    if (!i.producer) return error(Code::Internal, "input {} has no producer", i.name);
  }
  for (const CacheSpec& c : caches) {
    if (!names.insert(c.name).second) return error(Code::Internal, "the model declares {} twice", c.name);
    if (c.kind != CacheSpec::Kind::PerSequence) {
      if (!c.idempotent)
        return error(Code::Unsupported,
                     "cache {}: rows of pages are written by position, and a step may write them again", c.name);
      continue;
    }
    // One count of slots serves all of them.
    if (idempotent.value_or(c.idempotent) != c.idempotent)
      return error(Code::Unsupported, "cache {}: states that a step may and may not write twice in one model", c.name);
    idempotent = c.idempotent;
  }
  return Status::ok();
}

// What differs over the parts of a world, or what it is made of on the device.
static void add_part_inputs(const TraceOptions& o, StepSpec& s) {
  const Dim t(1, kTokens), q(1, kCuSeqlens);
  s.inputs.push_back(
      {.name = std::string(kPartRowsInput), .type = {DType::I32, {Dim(o.sequence_parts + 1)}}, .producer = part_rows});
  if (!o.parts_on_host) return;
  s.inputs.push_back(
      {.name = std::string(kOwnSlotsInput), .type = {o.index_dtype, {t}}, .producer = slots, .destination = true});
  s.inputs.push_back({.name = std::string(kOwnCuSeqlensInput), .type = {o.index_dtype, {q}}, .producer = cu_seqlens});
  s.inputs.push_back({.name = std::string(kOwnRowsInput), .type = {DType::I32, {t}}, .producer = no_rows});
}

StepSpec default_step(const checkpoint::ModelConfigFields& f, const TraceOptions& o) {
  using In = nn::StepInputs;
  const Dim t(1, kTokens), r(1, kSequences), q(1, kCuSeqlens), l(1, kLogitRows);
  const auto ids = [&](Shape shape) { return TensorType{o.index_dtype, shape}; };
  StepSpec s;
  s.token_shares = o.token_shares;
  s.inputs = {
      {.name = std::string(kTokensInput),
       .type = ids({t}),
       .producer = tokens,
       .member = &In::tokens,
       .padding_below = Dim(17),
       .change = change_token},
      {.name = "positions",
       .type = ids({t}),
       .producer = positions,
       .member = &In::positions,
       .padding_below = Dim(23),
       .change = add_one},
      {.name = std::string(kSlotsInput),
       .type = ids({t}),
       .producer = slots,
       .member = &In::slots,
       .destination = true,
       .change = take_one},
      {.name = std::string(kPageTableInput),
       .type = ids({r, Dim(o.max_pages)}),
       .producer = page_table,
       .member = &In::page_table,
       .change = forget_first_page},
      {.name = std::string(kLengthsInput),
       .type = ids({r}),
       .producer = context_lens,
       .member = &In::context_lens,
       .change = take_one},
      {.name = std::string(kCuSeqlensInput), .type = ids({q}), .producer = cu_seqlens, .member = &In::cu_seqlens},
      {.name = "last_rows",
       .type = ids({l}),
       .producer = last_rows,
       .member = &In::last_rows,
       .padding_below = t,
       .change = ask_for_another_row}};
  if (o.sequence_parts > 1) add_part_inputs(o, s);
  // Read by what the pass add_lora places, if anything.
  if (o.adapter_slots > 0)
    s.inputs.push_back({.name = std::string(kAdapterIdsInput),
                        .type = {DType::I32, {t, Dim(1)}},
                        .producer = adapter_ids,
                        .padding_below = Dim(o.adapter_slots + 1)});
  if (o.sampling) {
    s.inputs.push_back({.name = std::string(kDrawsInput),
                        .type = {DType::I32, {l, Dim(kDrawWords)}},
                        .producer = draws,
                        .member = &In::draws});
    s.inputs.push_back({.name = std::string(kEditsInput),
                        .type = {DType::I32, {Dim(1, kEditedRows), Dim(kEditWords)}},
                        .producer = edits,
                        .member = &In::edits});
    s.inputs.push_back({.name = std::string(kEditWordsInput),
                        .type = {DType::I32, {Dim(o.edit_words(f.vocab_size))}},
                        .producer = edit_words,
                        .member = &In::edit_words,
                        .used = [](const StepRows& step) { return step.edit_words(); }});
  }
  for (int64_t layer = 0; layer < f.num_hidden_layers; ++layer) {
    const auto rows = [&](std::string_view name, Shape page) {
      s.caches.push_back({.name = nn::cache_name(name, layer), .dtype = o.kv_dtype, .shape = page});
    };
    if (f.latent) {
      rows("c_kv", {Dim(kPageTokens), Dim(f.latent->kv_lora_rank)});
      rows("k_pe", {Dim(kPageTokens), Dim(f.latent->qk_rope_head_dim)});
    } else {
      rows("kv", {Dim(2), Dim(f.num_key_value_heads), Dim(kPageTokens), Dim(kv_row(o.kv_dtype, f.head_dim))});
    }
  }
  return s;
}

StepSpec encoder_step(const TraceOptions& o) {
  const Dim t(1, kTokens), l(1, kLogitRows);
  checkpoint::ModelConfigFields none;  // no layers, so no caches
  StepSpec s = default_step(none, o);
  constexpr std::string_view kOfCaches[] = {kSlotsInput, kPageTableInput, kLengthsInput};
  std::erase_if(s.inputs, [&](const InputSpec& i) {
    return std::find(std::begin(kOfCaches), std::end(kOfCaches), i.name) != std::end(kOfCaches);
  });
  s.inputs.push_back(
      {.name = "token_types", .type = {o.index_dtype, {t}}, .producer = token_types, .padding_below = Dim(1)});
  s.inputs.push_back({.name = "first_rows", .type = {o.index_dtype, {l}}, .producer = first_rows, .padding_below = t});
  return s;
}

std::vector<InputSpec> state_inputs(const TraceOptions& o) {
  using In = nn::StepInputs;
  const TensorType slot_of_each{o.index_dtype, {Dim(1, kSequences)}};
  std::vector<InputSpec> out{{.name = "state_read",
                              .type = slot_of_each,
                              .producer = state_read,
                              .member = &In::state_read,
                              .change = forget_state},
                             {.name = std::string(kStateWriteInput),
                              .type = slot_of_each,
                              .producer = state_write,
                              .member = &In::state_write,
                              .destination = true}};
  if (o.most_drafts > 0)
    out.push_back({.name = std::string(kStateDraftsInput),
                   .type = {o.index_dtype, {Dim(1, kSequences), Dim(2)}},
                   .producer = state_drafts,
                   .member = &In::drafts});
  return out;
}

}  // namespace reprise::models
