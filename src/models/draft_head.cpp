#include "models/draft_head.h"

#include <algorithm>

#include "models/rope.h"
#include "nn/encoder.h"

namespace reprise::models {
namespace {

// kOwnWrite: kWrite of the rows of one part of a world alone, where the host stages it (PartInputs).
constexpr std::string_view kRead = "source_read", kChoice = "source_choice", kWrite = "source_write",
                           kOwnWrite = "own_source_write";

int32_t slot_of(const SourceRows& source, int64_t position) {
  const auto page = static_cast<size_t>(position / kPageTokens);
  if (position < 0 || page >= source.pages.size()) return -1;
  return static_cast<int32_t>(source.pages[page] * kPageTokens + position % kPageTokens);
}

// Calls slot(source, t, is the part's last row) for every row of the step; none, where that is negative, and behind
// them.
template <typename F>
void fill(const StepRows& step, const TensorView& view, const F& slot) {
  const auto out = ints(view);
  size_t row = 0;
  for (const StepPart& p : step.parts)
    for (int64_t t = p.cached; t < p.cached + p.count; ++t, ++row) {
      const int32_t at = p.source ? slot(*p.source, t, t + 1 == p.cached + p.count) : -1;
      out[row] = at >= 0 ? at : step.no_page_slot(static_cast<int64_t>(row));
    }
  for (; row < out.size(); ++row) out[row] = step.no_page_slot(static_cast<int64_t>(row));
}

// The source's rows and those that the head has left lie in one cache by one rule.
void read_rows(const StepRows& step, const TensorView& view) {
  fill(step, view, [](const SourceRows& s, int64_t t, bool) { return slot_of(s, t); });
}
// Two rows are computed for each row of the step, of a row of the source and of a row of the head's own. This picks the
// one of the two that is there.
void choose_rows(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  int32_t row = 0;
  for (const StepPart& p : step.parts)
    for (int64_t t = p.cached; t < p.cached + p.count; ++t, ++row)
      out[static_cast<size_t>(row)] = 2 * row + (p.source && t >= p.source->computed ? 1 : 0);
  for (; row < static_cast<int32_t>(out.size()); ++row) out[static_cast<size_t>(row)] = 2 * row;
}
void write_rows(const StepRows& step, const TensorView& view) {
  fill(step, view, [](const SourceRows& s, int64_t t, bool last) { return last && s.leave ? slot_of(s, t + 1) : -1; });
}

}  // namespace

void declare_kept_rows(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  if (trace.kept_rows.empty()) return;
  const int64_t width = config.fields.hidden_size * static_cast<int64_t>(trace.kept_rows.size());
  step.caches.push_back(
      {.name = std::string(kKeptRows), .dtype = trace.dtype, .shape = {Dim(kPageTokens), Dim(width)}});
}

bool RowKeeper::keeps(int64_t layer) const {
  return std::find(in_.kept_rows.begin(), in_.kept_rows.end(), layer) != in_.kept_rows.end();
}

void RowKeeper::see(Tensor rows, int64_t layer) {
  if (keeps(layer)) rows_ = rows_.absent() ? rows : nn::concat(rows_, rows);
}

void RowKeeper::write() const {
  if (rows_.absent()) return;
  Tensor& cache = in_.caches.find(kKeptRows)->second;
  cache = nn::row_write(cache, rows_, in_.slots);
}

void declare_head(const TraceOptions& trace, int64_t layers, StepSpec& step, bool apart) {
  std::erase_if(step.caches, [&](const CacheSpec& c) {
    const size_t dot = c.name.rfind('.');
    return c.kind == CacheSpec::Kind::PerSequence ||
           (dot != std::string::npos && std::stoll(c.name.substr(dot + 1)) >= layers);
  });
  const TensorType slots{trace.index_dtype, {Dim(1, kTokens)}};
  step.inputs.push_back({.name = std::string(kRead), .type = slots, .producer = read_rows});
  if (apart) step.inputs.push_back({.name = std::string(kChoice), .type = slots, .producer = choose_rows});
  const auto writes = [&](std::string_view name) {
    step.inputs.push_back({.name = std::string(name), .type = slots, .producer = write_rows, .destination = true});
  };
  writes(kWrite);
  if (trace.sequence_parts > 1 && trace.parts_on_host) writes(kOwnWrite);
  step.caches.push_back({.name = std::string(kSourceRows),
                         .kind = CacheSpec::Kind::Source,
                         .dtype = trace.dtype,
                         .shape = {Dim(kPageTokens), Dim(trace.source_width)}});
}

Tensor source_rows(nn::StepInputs& in) {
  return nn::index_select(nn::cache_rows(in.caches.find(kSourceRows)->second), in.more(kRead));
}

Tensor rows_apart(nn::StepInputs& in, Tensor made, Tensor own) {
  return nn::index_select(nn::split_rows(nn::concat(made, own), 2), in.more(kChoice));
}

void leave_rows(nn::StepInputs& in, Tensor rows) {
  Tensor& cache = in.caches.find(kSourceRows)->second;
  const int64_t width = cache.dim(-1).factor;
  Tensor wide = rows;
  while (wide.dim(-1).factor < width) wide = nn::concat(wide, rows);
  cache = nn::row_write(cache, wide, in.more(kWrite));
}

ModelOutputs prediction_head(const ModelConfig& config, const LayerAttention& attention, const LayerMlp& mlp,
                             nn::StepInputs& in, const nn::ParamScope& root, const PredictionNames& names) {
  const auto& f = config.fields;
  const bool behind = names.scope.empty();
  const int64_t number = behind ? f.num_hidden_layers : 0;
  const nn::ParamScope model = root / "model", p = behind ? model / "layers" / number : root / names.scope;
  const nn::ParamScope layer = behind ? p : p / "layers" / number;
  const auto norm = [&](Tensor x, const nn::ParamScope& scope) { return names.norm(x, scope, f.rms_norm_eps); };
  const Tensor table = (model / "embed_tokens").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  const Tensor embedding = nn::embedding(table, in.tokens), rows = source_rows(in);
  Tensor x = nn::linear(nn::concat(norm(embedding, p / names.of_embedding), norm(rows, p / names.of_rows)),
                        p / names.join, f.hidden_size, false, nn::Shard::None);
  const Tensor rope = nn::rope_table(in.positions, rope_spec(config));
  x = nn::add(x, attention(norm(x, layer / "input_layernorm"), rope, 0, layer));
  x = nn::add(x, mlp(norm(x, layer / "post_attention_layernorm"), number, layer));
  x = norm(x, p / names.last);
  leave_rows(in, x);
  x = nn::index_select(x, in.last_rows);
  const Tensor head =
      f.tie_word_embeddings ? table : (root / "lm_head").param("weight", {Dim(f.vocab_size), Dim(f.hidden_size)});
  return {.hidden = x, .logits = nn::linear_f32(x, head, nn::Shard::Column)};
}

void declare_prediction(const ModelConfig&, const TraceOptions& trace, StepSpec& step) { declare_head(trace, 1, step); }

}  // namespace reprise::models
