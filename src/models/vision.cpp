#include "models/vision.h"

#include <algorithm>
#include <cmath>

#include "nn/encoder.h"
#include "nn/layers.h"

namespace reprise::models {
namespace {

using checkpoint::VisionFields;

constexpr double kEps = 1e-6;  // of all norms of these towers
constexpr double kTheta = 1e4;

struct TowerStep {
  Tensor table, cu_seqlens, windows;
};

Tensor tower_norm(Tensor x, const VisionFields& v, const nn::ParamScope& p) {
  return v.window > 0 ? nn::rms_norm(x, p, kEps) : nn::layer_norm_biased(x, p, kEps);
}

Tensor tower_attention(const VisionFields& v, Tensor x, const TowerStep& in, int64_t block, const nn::ParamScope& p) {
  const int64_t size = v.hidden / v.heads;
  const Tensor qkv = v.apart ? Tensor() : nn::linear(x, p / "qkv", 3 * v.hidden, true, nn::Shard::None);
  const auto part = [&](int64_t i) {
    constexpr std::string_view kApart[] = {"q", "k", "v"};
    return nn::heads(v.apart ? nn::linear(x, p / kApart[i], v.hidden, true, nn::Shard::None)
                             : nn::slice(qkv, i * v.hidden, v.hidden),
                     size);
  };
  const Tensor q = nn::rope(part(0), in.table), k = nn::rope(part(1), in.table);
  const Tensor seen = nn::segment_attention(q, k, part(2), v.full(block) ? in.cu_seqlens : in.windows,
                                            1.0 / std::sqrt(static_cast<double>(size)));
  return nn::linear(nn::flatten(seen), p / "proj", v.hidden, true, nn::Shard::None);
}

Tensor tower_mlp(const VisionFields& v, Tensor x, const nn::ParamScope& p) {
  if (v.window > 0)
    return nn::gated_mlp(x, {.intermediate = v.intermediate, .bias = true, .activation = v.activation}, p);
  const Tensor h = nn::linear(x, p / "linear_fc1", v.intermediate, true, nn::Shard::None);
  return nn::linear(nn::activate(h, v.activation), p / "linear_fc2", v.hidden, true, nn::Shard::None);
}

// `joined`: the norm is one of whole blocks.
Tensor merger(const VisionFields& v, Tensor x, bool joined, const nn::ParamScope& p) {
  const bool named = v.window == 0;
  const int64_t width = v.hidden * v.block();
  if (joined) x = nn::join_rows(x, v.block());
  x = tower_norm(x, v, p / (named ? "norm" : "ln_q"));
  if (!joined) x = nn::join_rows(x, v.block());
  const Tensor h = nn::gelu(nn::linear(x, named ? p / "linear_fc1" : p / "mlp" / "0", width, true, nn::Shard::None));
  return nn::linear(h, named ? p / "linear_fc2" : p / "mlp" / "2", v.out_hidden, true, nn::Shard::None);
}

// Learned positions of a square grid, from the four places around each patch.
Tensor learned_places(const VisionFields& v, const std::array<Tensor, 4>& taps, const std::array<Tensor, 4>& weights,
                      const nn::ParamScope& p) {
  const Tensor table = p.param("weight", {Dim(v.side * v.side), Dim(v.hidden)});
  Tensor sum;
  for (size_t k = 0; k < taps.size(); ++k) {
    const Tensor part = nn::scale_rows(nn::embedding(table, taps[k]), weights[k]);
    sum = k == 0 ? part : nn::add(sum, part);
  }
  return sum;
}

nn::RopeSpec tower_rope(const VisionFields& v, std::vector<double>& axes) {
  const int64_t quarter = v.hidden / v.heads / 4;
  nn::RopeSpec spec;
  spec.dim = 4 * quarter;
  for (const double axis : {0.0, 1.0})
    for (int64_t i = 0; i < quarter; ++i) {
      spec.inv_freq.push_back(1.0 / std::pow(kTheta, static_cast<double>(i) / static_cast<double>(quarter)));
      axes.push_back(axis);
    }
  return spec;
}

// The part of [0, side) that place i of `size` falls on, ends on ends, as transformers computes it in fp32.
float source_of(int64_t i, int64_t size, int64_t side) {
  return static_cast<float>(i) * static_cast<float>(side - 1) / static_cast<float>(std::max<int64_t>(size - 1, 1));
}

}  // namespace

Result<Graph> trace_tower(const ModelConfig& config, DType dtype, int64_t max_rows, const OpRegistry& ops) {
  const VisionFields& v = *config.fields.vision;
  Tracer tracer(config.fields.architecture + " vision tower", ops);
  const Dim rows = tracer.symbol("M", max_rows), images = tracer.symbol("B", 2);
  const Dim windows = tracer.symbol("W", max_rows + 1), patches(v.block(), rows.symbol);
  TowerStep step;
  const Tensor input = tracer.input(std::string(kPatchesInput), {dtype, {patches, Dim(v.patch_width())}});
  const Tensor places = tracer.input(std::string(kPlacesInput), {DType::I32, {patches, Dim(2)}});
  step.cu_seqlens = tracer.input(std::string(kImageCuSeqlensInput), {DType::I32, {images}});
  if (v.window > 0) step.windows = tracer.input(std::string(kWindowCuSeqlensInput), {DType::I32, {windows}});
  std::vector<double> axes;
  const nn::RopeSpec rope = tower_rope(v, axes);
  step.table = nn::rope_table_axes(places, rope, axes);
  const nn::ParamScope root = nn::ParamScope(tracer, dtype) / "visual";
  Tensor x = nn::linear(input, root / "patch_embed" / "proj", v.hidden, v.window == 0, nn::Shard::None);
  if (v.side > 0) {
    std::array<Tensor, 4> taps, weights;
    for (size_t k = 0; k < taps.size(); ++k) {
      taps[k] = tracer.input(fmt::format("tap.{}", k), {DType::I32, {patches}});
      weights[k] = tracer.input(fmt::format("tap_weight.{}", k), {DType::F32, {patches, Dim(1)}});
    }
    x = nn::add(x, learned_places(v, taps, weights, root / "pos_embed"));
  }
  for (int64_t b = 0, deep = 0; b < v.depth; ++b) {
    const nn::ParamScope p = root / "blocks" / b;
    x = nn::add(x, tower_attention(v, tower_norm(x, v, p / "norm1"), step, b, p / "attn"));
    x = nn::add(x, tower_mlp(v, tower_norm(x, v, p / "norm2"), p / "mlp"));
    if (std::find(v.deepstack_blocks.begin(), v.deepstack_blocks.end(), b) == v.deepstack_blocks.end()) continue;
    tracer.output(fmt::format("deep.{}", deep), merger(v, x, true, root / "deepstack_merger_list" / deep));
    ++deep;
  }
  tracer.output("rows", merger(v, x, false, root / "merger"));
  return tracer.finish();
}

TowerLayout tower_layout(const VisionFields& v, int64_t rows, int64_t columns) {
  TowerLayout out;
  const int64_t m = v.merge, high = rows / m, wide = columns / m, count = high * wide;
  out.row_of.resize(static_cast<size_t>(count));
  // Merged rows in the order of the program: window by window, or line by line.
  std::vector<int32_t> merged;
  const int64_t side = v.window > 0 ? v.window / m : std::max(high, wide);
  if (v.window > 0) out.windows.push_back(0);
  for (int64_t y = 0; y < high; y += side)
    for (int64_t x = 0; x < wide; x += side) {
      for (int64_t i = y; i < std::min(high, y + side); ++i)
        for (int64_t j = x; j < std::min(wide, x + side); ++j) merged.push_back(static_cast<int32_t>(i * wide + j));
      if (v.window > 0) out.windows.push_back(static_cast<int32_t>(static_cast<int64_t>(merged.size()) * v.block()));
    }
  for (size_t i = 0; i < merged.size(); ++i) {
    const int64_t row = merged[i] / wide, column = merged[i] % wide;
    out.row_of[static_cast<size_t>(merged[i])] = static_cast<int32_t>(i);
    for (int64_t k = 0; k < v.block(); ++k) {
      const int64_t y = row * m + k / m, x = column * m + k % m;
      out.order.push_back(static_cast<int32_t>(merged[i] * v.block() + k));
      out.places.push_back(static_cast<int32_t>(y));
      out.places.push_back(static_cast<int32_t>(x));
      if (v.side == 0) continue;
      const float fy = source_of(y, rows, v.side), fx = source_of(x, columns, v.side);
      for (size_t t = 0; t < out.taps.size(); ++t) {
        const float dy = std::floor(fy) + static_cast<float>(t / 2), dx = std::floor(fx) + static_cast<float>(t % 2);
        const auto at = [&](float f) { return std::min(static_cast<int64_t>(f), v.side - 1); };
        out.taps[t].push_back(static_cast<int32_t>(at(dy) * v.side + at(dx)));
        out.weights[t].push_back(std::max(0.f, 1 - std::fabs(fy - dy)) * std::max(0.f, 1 - std::fabs(fx - dx)));
      }
    }
  }
  return out;
}

}  // namespace reprise::models
