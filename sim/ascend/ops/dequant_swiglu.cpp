// DequantSwigluQuant: scales an int32 product back, gates one half with the other, and quantises.
#include <cmath>

#include "ascend/ops/check.h"
#include "ascend/ops/quantise.h"

namespace ascend_sim {

namespace {

struct Gated {
  Slot x, weight_scale, activation_scale, bias, quant_scale, quant_offset, groups, out, scale;
  bool left = false, dynamic = false;
};

// One row of per-group values: those of [groups, width] or, where there is only one, for all.
template <typename Number = float>
std::vector<Number> row_of_group(const View& view, int64_t group, int64_t width) {
  if (!view.given) return {};
  const std::vector<Number> all = read<Number>(view);
  const auto size = static_cast<int64_t>(all.size());
  if (size <= width) return all;
  return {all.begin() + group * width, all.begin() + (group + 1) * width};
}

void gate_rows(const Operands& v, const Gated& g, int64_t group, int64_t from, int64_t to) {
  const int64_t width = v[g.x].dim(-1), half = width / 2;
  const std::vector<float> weights = row_of_group(v[g.weight_scale], group, width);
  const std::vector<float> bias = row_of_group(v[g.bias], group, width);
  const std::vector<float> factors = row_of_group(v[g.quant_scale], group, half);
  const std::vector<float> shifts = row_of_group(v[g.quant_offset], group, half);
  const bool whole = v[g.x].dtype == kInt32, early = v[g.bias].given && v[g.bias].dtype == kInt32;
  const std::vector<int32_t> added = early ? row_of_group<int32_t>(v[g.bias], group, width) : std::vector<int32_t>{};
  std::vector<float> row(static_cast<size_t>(width)), result(static_cast<size_t>(half));
  std::vector<int32_t> sums(row.size());
  std::vector<int8_t> bytes(result.size());
  for (int64_t r = from; r < to; ++r) {
    if (whole) {
      read_row(v[g.x], r, width, sums.data());
      float token = 1;
      if (v[g.activation_scale].given) read_row(v[g.activation_scale], r, 1, &token);
      for (size_t i = 0; i < row.size(); ++i) {
        const int32_t sum = sums[i] + (early ? added[i] : 0);
        row[i] = static_cast<float>(sum) * (weights.size() == 1 ? weights[0] : weights[i]) * token;
        if (!early && !bias.empty()) row[i] += bias[i];
      }
    } else {
      read_row(v[g.x], r, width, row.data());
    }
    for (int64_t i = 0; i < half; ++i) {
      const float gate = row[static_cast<size_t>(g.left ? i : half + i)],
                  up = row[static_cast<size_t>(g.left ? half + i : i)];
      float value = gate / (1 + std::exp(-gate)) * up;
      const auto place = static_cast<size_t>(i);
      if (!factors.empty()) {
        const float factor = factors[factors.size() == 1 ? 0 : place];
        value = g.dynamic ? value * factor : value / factor;
      }
      if (!g.dynamic && !shifts.empty()) value += shifts[shifts.size() == 1 ? 0 : place];
      result[place] = value;
    }
    if (g.dynamic) {
      const float scale = quantise_row(result.data(), half, bytes.data());
      write_row(v[g.scale], r, 1, &scale);
    } else {
      for (size_t i = 0; i < result.size(); ++i) bytes[i] = to_int8(result[i]);
    }
    write_row(v[g.out], r, half, bytes.data());
  }
}

void check_types(Operator& op, const Gated& g) {
  op.dtype(g.x, {kInt32, kHalf, kBf16});
  op.dtype(g.weight_scale, {kFloat});
  op.dtype(g.activation_scale, {kFloat});
  op.dtype(g.bias, {kInt32, kHalf, kBf16, kFloat});
  op.dtype(g.quant_scale, {kFloat, kHalf, kBf16});
  op.dtype(g.quant_offset, {kFloat, kHalf, kBf16});
  op.dtype(g.groups, {kInt64});
  op.dtype(g.out, {kInt8});
  op.dtype(g.scale, {kFloat});
  const bool whole = op[g.x].dtype == kInt32;
  op.valid(!whole || op.given(g.weight_scale), "an x of INT32 needs weightScaleOptional");
  op.valid(whole || (!op.given(g.weight_scale) && !op.given(g.activation_scale) && !op.given(g.bias)),
           "only an x of INT32 takes weightScaleOptional, activationScaleOptional and biasOptional");
}

void check_shapes(Operator& op, const Gated& g) {
  const int64_t width = op[g.x].dim(-1), half = width / 2, groups = op.given(g.groups) ? op[g.groups].count() : 1;
  op.valid(op[g.x].rank() >= 2 && width % 2 == 0, "x " + text_of(op[g.x].shape) + " has no rows with halves");
  Dims expected = op[g.x].shape;
  expected.back() = half;
  op.shape(g.out, expected);
  const Dims rows = row_shape(op[g.x]);
  if (g.dynamic) op.shape(g.scale, rows);
  const auto of_groups = [&](Slot slot, const char* name, int64_t size, bool or_one) {
    if (!op.given(slot)) return;
    const int64_t count = op[slot].count();
    op.valid(count == groups * size || count == size || (or_one && count == 1),
             std::string(name) + " " + text_of(op[slot].shape) + " needs " + std::to_string(size) + " elements" +
                 (groups > 1 ? " per group" : ""));
  };
  of_groups(g.weight_scale, "weightScaleOptional", width, false);
  of_groups(g.bias, "biasOptional", width, false);
  of_groups(g.quant_scale, "quantScaleOptional", half, !g.dynamic);
  of_groups(g.quant_offset, "quantOffsetOptional", half, true);
  op.valid(!op.given(g.activation_scale) || op[g.activation_scale].count() == product(rows),
           "activationScaleOptional needs one element per row");
  double buffered = 10.0 * static_cast<double>(width * op[g.x].element());
  for (const Slot slot : {g.weight_scale, g.bias, g.quant_scale, g.quant_offset})
    if (op.given(slot)) buffered += op[slot].bytes();
  for (const Slot slot : {g.activation_scale, g.scale})
    if (op.given(slot)) buffered += op[slot].bytes() / 40;
  op.obeys(Rule::SwigluBuffer, buffered < 192 * 1024,
           "rows of " + std::to_string(width) + " take " + std::to_string(static_cast<int64_t>(buffered)));
  if (op.rules(Rule::SwigluBuffer)) return;
  // Before: a row of sums, scales and results at once, 8 bytes for each of its elements, 5 for each of the output's
  // (assumed).
  const int64_t buffer = width * 8 + half * 5;
  op.tiled(buffer <= static_cast<int64_t>(machine().unified_buffer),
           "a row of " + std::to_string(width) + " takes " + std::to_string(buffer) + " bytes of the " +
               std::to_string(machine().unified_buffer) + " of the unified buffer");
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnDequantSwigluQuantGetWorkspaceSize(Tensor x, Tensor weightScaleOptional,
                                                    Tensor activationScaleOptional, Tensor biasOptional,
                                                    Tensor quantScaleOptional, Tensor quantOffsetOptional,
                                                    Tensor groupIndexOptional, bool activateLeft,
                                                    char* quantModeOptional, Tensor yOut, Tensor scaleOut,
                                                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnDequantSwigluQuant", workspaceSize, executor);
  Gated g;
  g.x = op.in("x", x), g.weight_scale = op.maybe_in("weightScaleOptional", weightScaleOptional);
  g.activation_scale = op.maybe_in("activationScaleOptional", activationScaleOptional);
  g.bias = op.maybe_in("biasOptional", biasOptional);
  g.quant_scale = op.maybe_in("quantScaleOptional", quantScaleOptional);
  g.quant_offset = op.maybe_in("quantOffsetOptional", quantOffsetOptional);
  g.groups = op.maybe_in("groupIndexOptional", groupIndexOptional);
  const std::string mode = op.text(quantModeOptional);
  g.left = activateLeft, g.dynamic = mode == "dynamic";
  g.out = op.out("yOut", yOut), g.scale = op.out("scaleOut", scaleOut);
  op.attributes({activateLeft});
  op.tiled(mode == "static" || mode == "dynamic", "quantModeOptional \"" + mode + "\" may be static or dynamic");
  if (!op.ok()) return op.status();
  op.tiled(g.dynamic || op.given(g.quant_scale), "static quantisation needs quantScaleOptional");
  check_types(op, g);
  check_shapes(op, g);
  return op.finish(Unit::Vector, static_cast<double>(op[g.x].count()) * 8, [=](const Operands& v) {
    const int64_t rows = product(row_shape(v[g.x]));
    if (!v[g.groups].given) return gate_rows(v, g, 0, 0, rows);
    int64_t start = 0, group = 0;
    for (const int64_t count : read<int64_t>(v[g.groups])) {  // rows of no group stay as they are
      const int64_t end = std::min(rows, start + std::max<int64_t>(0, count));
      gate_rows(v, g, group++, start, end);
      start = end;
    }
  });
}
ACLNN_PHASE2(aclnnDequantSwigluQuant);

}  // extern "C"
