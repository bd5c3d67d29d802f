#include "models/image_step.h"

#include <algorithm>
#include <cstring>

#include "models/rope.h"
#include "nn/encoder.h"

namespace reprise::models {
namespace {

constexpr std::string_view kIndex = "image_index", kRows = "image_rows", kPositions = "positions3", kText = "text_rows";

// Calls f(image, t, row) for every token of the step; image is null for text.
template <typename F>
int64_t each_token(const StepRows& step, const F& f) {
  int64_t row = 0;
  for (const StepPart& p : step.parts)
    for (int64_t t = p.cached; t < p.cached + p.count; ++t, ++row) f(p, image_at(p.images, t), t, row);
  return row;
}

int64_t image_tokens(const StepRows& step) {
  int64_t count = 0;
  each_token(step, [&](const StepPart&, const PlacedImage* image, int64_t, int64_t) { count += image != nullptr; });
  return count;
}

void image_index(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  const auto none = static_cast<int32_t>(image_tokens(step));  // there is such a row where there is text
  int32_t next = 0;
  const int64_t rows = each_token(step, [&](const StepPart&, const PlacedImage* image, int64_t, int64_t row) {
    out[static_cast<size_t>(row)] = image ? next++ : none;
  });
  std::fill(out.begin() + rows, out.end(), 0);
}

void text_rows(const StepRows& step, const TensorView& view) {
  auto* out = static_cast<float*>(view.data);
  const int64_t rows = each_token(
      step, [&](const StepPart&, const PlacedImage* image, int64_t, int64_t row) { out[row] = image ? 0.f : 1.f; });
  std::fill(out + rows, out + view.elements(), 0.f);
}

void positions3(const StepRows& step, const TensorView& view) {
  const auto out = ints(view);
  const int64_t rows = each_token(step, [&](const StepPart& p, const PlacedImage*, int64_t t, int64_t row) {
    const auto three = position_of(p.images, t);
    std::copy(three.begin(), three.end(), out.begin() + 3 * row);
  });
  std::fill(out.begin() + 3 * rows, out.end(), 0);
}

// `level` -1: the rows themselves; else of deepstack.
template <int kLevel>
void image_rows(const StepRows& step, const TensorView& view) {
  auto* to = static_cast<uint8_t*>(view.data);
  each_token(step, [&](const StepPart&, const PlacedImage* image, int64_t t, int64_t) {
    if (!image) return;
    const size_t bytes = image->rows->row_bytes;
    const auto& from = kLevel < 0 ? image->rows->rows : image->rows->deep[static_cast<size_t>(kLevel)];
    std::memcpy(to, from.data() + static_cast<size_t>(t - image->first) * bytes, bytes);
    to += bytes;
  });
  const auto* end = static_cast<uint8_t*>(view.data) + static_cast<size_t>(view.elements()) * size_of(view.dtype);
  const size_t row = static_cast<size_t>(view.size[1]) * size_of(view.dtype);
  if (to < end) std::memset(to, 0, row);
}

constexpr Producer kDeep[] = {image_rows<0>, image_rows<1>, image_rows<2>, image_rows<3>,
                              image_rows<4>, image_rows<5>, image_rows<6>, image_rows<7>};

int64_t used_rows(const StepRows& step) { return (image_tokens(step) + 1) * step.hidden; }

bool has_images(const nn::StepInputs& in) { return in.added.contains(kIndex); }

}  // namespace

void declare_images(const ModelConfig& config, const TraceOptions& trace, StepSpec& step) {
  if (!trace.images) return;
  const Dim t(1, kTokens), width(config.fields.hidden_size);
  step.inputs.push_back({.name = std::string(kIndex), .type = {trace.index_dtype, {t}}, .producer = image_index});
  step.inputs.push_back(
      {.name = std::string(kPositions), .type = {trace.index_dtype, {t, Dim(3)}}, .producer = positions3});
  const auto rows = [&](std::string name, Producer producer) {
    step.inputs.push_back(
        {.name = std::move(name), .type = {trace.dtype, {t, width}}, .producer = producer, .used = used_rows});
  };
  rows(std::string(kRows), image_rows<-1>);
  step.inputs.push_back({.name = std::string(kText), .type = {DType::F32, {t, Dim(1)}}, .producer = text_rows});
  const size_t levels = config.fields.vision->deepstack_blocks.size();
  CHECK(levels <= std::size(kDeep), "deepstack of {} levels", levels);
  for (size_t k = 0; k < levels; ++k) rows(fmt::format("deep.{}", k), kDeep[k]);
}

Tensor with_images(Tensor embeddings, const nn::StepInputs& in) {
  if (!has_images(in)) return embeddings;
  return nn::add(nn::scale_rows(embeddings, in.more(kText)), nn::index_select(in.more(kRows), in.more(kIndex)));
}

Tensor with_deep_rows(const ModelConfig& config, Tensor x, int64_t layer, const nn::StepInputs& in) {
  if (!has_images(in) || layer >= static_cast<int64_t>(config.fields.vision->deepstack_blocks.size())) return x;
  return nn::add(x, nn::index_select(in.more(fmt::format("deep.{}", layer)), in.more(kIndex)));
}

Tensor image_rope_table(const ModelConfig& config, const nn::StepInputs& in) {
  const nn::RopeSpec spec = rope_spec(config);
  if (!has_images(in)) return nn::rope_table(in.positions, spec);
  return nn::rope_table_axes(in.more(kPositions), spec,
                             config.fields.vision->axes(static_cast<int64_t>(spec.inv_freq.size())));
}

}  // namespace reprise::models
