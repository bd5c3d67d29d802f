// One product per expert over the rows sorted to it. Where the groups end is read from the device.
#include <cmath>

#include "ascend/ops/check.h"
#include "ascend/ops/matrix.h"
#include "ascend/ops/quantise.h"

namespace ascend_sim {

namespace {

struct Group {
  int64_t expert = 0, from = 0, to = 0;
};

// Rows of each expert by a list of ends (0), of counts (1) or of pairs of expert and count (2).
std::vector<Group> groups_of(const std::vector<int64_t>& list, int64_t kind, int64_t rows, int64_t experts,
                             const std::string& name) {
  std::vector<Group> groups;
  int64_t start = 0;
  for (size_t i = 0; i < list.size(); i += kind == 2 ? 2 : 1) {
    const int64_t expert = kind == 2 ? list[i] : static_cast<int64_t>(i), count = kind == 2 ? list[i + 1] : list[i];
    const int64_t end = kind == 0 ? count : start + count;
    if (end < start || end > rows || expert < 0 || expert >= experts) {
      throw DeviceFault(name + ": the group of expert " + std::to_string(expert) + " ends at row " +
                        std::to_string(end) + " of " + std::to_string(rows));
    }
    groups.push_back({expert, start, end});
    start = end;
  }
  return groups;
}

Matrix rows_of(const View& x, const Group& group) {
  Matrix rows = matrix_of(x);
  rows.data += group.from * x.dim(1) * x.element();
  rows.rows = group.to - group.from;
  return rows;
}

Matrix weight_of(const View& weight, int64_t expert) {
  return matrix_of(weight, weight.fractal() ? expert : expert * weight.strides[0]);
}

// Bytes of the stack that nothing reads. Which experts have rows is known on the device alone: as many as there can be
// count.
double idle_bytes(const View& weight, int64_t rows) {
  const int64_t experts = weight.dim(0);
  return weight.bytes() *
         (1 - static_cast<double>(std::min(experts, rows)) / static_cast<double>(std::max<int64_t>(1, experts)));
}

float activated(int64_t kind, float x) {
  switch (kind) {
    case 1: return std::fmax(x, 0.0f);
    case 2: return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    case 4: return x / (1 + std::exp(-1.702f * x));
    case 5: return x / (1 + std::exp(-x));
    default: return x;
  }
}

struct Grouped {
  Slot x, weight, bias, scale, tokens, list, out;
  int64_t kind = 0, activation = 0;
};

template <typename Number>
void compute_groups(const Operands& v, const Grouped& g, const std::string& name) {
  const int64_t columns = v[g.weight].dim(2);
  const bool whole = std::is_same_v<Number, int32_t>;
  const auto optional = [&](Slot slot) { return v[slot].given ? read(v[slot]) : std::vector<float>{}; };
  const std::vector<float> bias = whole ? std::vector<float>{} : optional(g.bias), scales = optional(g.scale);
  const std::vector<float> tokens = optional(g.tokens);
  const std::vector<int32_t> added = whole && v[g.bias].given ? read<int32_t>(v[g.bias]) : std::vector<int32_t>{};
  std::vector<Number> sums;
  std::vector<float> line(static_cast<size_t>(columns));
  const auto groups = groups_of(read<int64_t>(v[g.list]), g.kind, v[g.x].dim(0), v[g.weight].dim(0), name);
  for (const Group& group : groups) {
    sums.resize(static_cast<size_t>((group.to - group.from) * columns));
    if (sums.empty()) continue;
    multiply(rows_of(v[g.x], group), weight_of(v[g.weight], group.expert), sums.data());
    for (int64_t row = group.from; row < group.to; ++row) {
      const Number* sum = sums.data() + (row - group.from) * columns;
      for (int64_t n = 0; n < columns; ++n) {
        const auto at_column = static_cast<size_t>(n), of_expert = static_cast<size_t>(group.expert * columns + n);
        float value = static_cast<float>(
            added.empty() ? sum[n] : static_cast<Number>(sum[n] + static_cast<Number>(added[of_expert])));
        if (!scales.empty()) value *= scales[of_expert];
        if (!tokens.empty()) value *= tokens[static_cast<size_t>(row)];
        if (!bias.empty()) value += bias[of_expert];
        line[at_column] = activated(g.activation, value);
      }
      write_row(v[g.out], row, columns, line.data());
    }
  }
}

void check_types(Operator& op, const Grouped& g, bool fifth) {
  op.dtype(g.x, {kFloat, kHalf, kBf16, kInt8});
  op.same_dtype(g.weight, g.x);
  op.dtype(g.list, {kInt64});
  const aclDataType type = op[g.x].dtype;
  if (type != kInt8) {
    op.same_dtype(g.out, g.x);
    op.dtype(g.bias, {type == kHalf ? kHalf : kFloat});
    op.valid(!op.given(g.scale) && !op.given(g.tokens), "only INT8 operands take scales");
    op.tiled(g.activation == 0, "actType must be 0 unless the operands are INT8");
    return;
  }
  op.dtype(g.out, {kBf16, kHalf});
  op.dtype(g.tokens, {kFloat});
  op.dtype(g.bias, {kInt32});
  op.valid(op.given(g.scale), "INT8 operands need scaleOptional");
  op.dtype(g.scale, {kBf16, kFloat});
  if (!op.ok()) return;
  const bool halves = op[g.out].dtype == kHalf, wide = op[g.scale].dtype == kFloat;
  const std::string pair = "scales of " + name_of(op[g.scale].dtype) + " and a result of " + name_of(op[g.out].dtype);
  op.obeys(Rule::GroupedScale, halves == wide, pair);
  // Before: a FLOAT scale made a BF16 result only where the weight was fractal, by the table of the fourth version.
  op.valid(halves == wide || (!halves && (op[g.weight].fractal() || fifth)), pair);
  const int64_t a = g.activation;
  op.tiled(a == 0 || a == 1 || a == 2 || a == 4 || a == 5,
           "actType is " + std::to_string(a) + "; it may be 0, 1, 2, 4 or 5");
}

struct Lists {
  Tensors x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token;
  Tensor groups;
  Tensors activation_in, activation_scale, activation_offset;
  int64_t split, group_type, list_type, activation;
  aclTensorList *out, *features, *scales;
};

Slot only(Operator& op, const char* name, Tensors list, bool needed, Walk walk = Walk::Packed,
          Role role = Role::Input) {
  const std::vector<Slot> slots = op.list(name, list, walk, needed, role);
  if (needed && op.ok()) {
    op.tiled(slots.size() == 1,
             std::string(name) + " has " + std::to_string(slots.size()) + " tensors; one is simulated");
  }
  return slots.empty() ? op.maybe_in("", nullptr) : slots[0];
}

int grouped_product(Operator& op, const Lists& l, bool fifth) {
  Grouped g;
  g.x = only(op, "x", l.x, true);
  const bool has_weight = l.weight != nullptr && live(l.weight) && !l.weight->tensors.empty();
  g.weight = only(op, "weight", l.weight, true, has_weight ? matrix_walk(l.weight->tensors[0]) : Walk::Packed);
  g.bias = only(op, "biasOptional", l.bias, false), g.scale = only(op, "scaleOptional", l.scale, false);
  op.absent("offsetOptional", l.offset);
  op.absent("antiquantScaleOptional", l.antiquant_scale);
  op.absent("antiquantOffsetOptional", l.antiquant_offset);
  g.tokens = only(op, "perTokenScaleOptional", l.per_token, false);
  g.list = op.in("groupListOptional", l.groups);
  op.absent("activationInputOptional", l.activation_in);
  op.absent("activationQuantScaleOptional", l.activation_scale);
  op.absent("activationQuantOffsetOptional", l.activation_offset);
  g.out = only(op, "out", l.out, true, Walk::Packed, Role::Output);
  op.absent("activationFeatureOutOptional", l.features);
  op.absent("dynQuantScaleOutOptional", l.scales);
  g.kind = l.list_type, g.activation = l.activation;
  op.attributes({l.split, l.group_type, l.list_type, l.activation});
  if (!op.ok()) return op.status();
  op.tiled(l.split == 2 || l.split == 3,
           "splitItem is " + std::to_string(l.split) + "; with one tensor each it is 2 or 3");
  op.tiled(l.group_type == 0, "groupType is " + std::to_string(l.group_type) + "; only 0 (rows) is simulated");
  op.tiled(g.kind >= 0 && g.kind <= 2, "groupListType may be 0 (ends), 1 (counts) or 2 (pairs)");
  op.rank(g.x, 2, 2);
  op.rank(g.weight, 3, 3);
  check_types(op, g, fifth);
  check_fractal(op, g.weight, "weight");
  if (!op.ok()) return op.status();
  const int64_t rows = op[g.x].dim(0), depth = op[g.x].dim(1), experts = op[g.weight].dim(0),
                columns = op[g.weight].dim(2);
  const bool whole_type = op[g.x].dtype == kInt8;
  op.valid(op[g.weight].dim(1) == depth,
           "x " + text_of(op[g.x].shape) + " and weight " + text_of(op[g.weight].shape) + " do not fit");
  op.obeys(Rule::GroupedRows, depth <= 65535 && columns <= 65535,
           std::to_string(depth) + " x " + std::to_string(columns));
  if (op[g.weight].fractal()) {
    const int64_t lane = whole_type ? 32 : 16;
    const bool turned = !op[g.weight].packed() && whole_type;
    op.obeys(Rule::GroupedFractalAlign, depth % (turned ? lane : 16) == 0 && columns % (turned ? 16 : lane) == 0,
             "K is " + std::to_string(depth) + ", N " + std::to_string(columns));
  }
  op.shape(g.out, {rows, columns});
  for (const Slot slot : {g.bias, g.scale}) op.shape(slot, {experts, columns});
  op.shape(g.tokens, {rows});
  op.shape(g.list, g.kind == 2 ? Dims{experts, 2} : Dims{experts});
  const double idle = idle_bytes(op[g.weight], rows);
  const bool whole = op[g.x].dtype == kInt8;
  const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(depth) * static_cast<double>(columns);
  const std::string name = op.name();
  return op.finish(
      whole ? Unit::CubeInt8 : Unit::Cube, operations,
      [=](const Operands& v) { whole ? compute_groups<int32_t>(v, g, name) : compute_groups<float>(v, g, name); },
      op.bytes_of_all() - idle);
}

struct GatedProduct {
  Tensor x, weight, bias, offset, weight_scale, x_scale, groups;
  TensorRef out, out_scale, out_offset;
};

// The stack [E, K, N] of a view [E, N / 32, K / 16, 16, 32].
View of_blocks(const View& blocks) {
  View stack = blocks;
  stack.shape = {blocks.dim(0), blocks.dim(2) * 16, blocks.dim(1) * 32};
  stack.strides = packed_strides(stack.shape);
  return stack;
}

// With `logical` the weight is seen as [E, K, N].
int gated_product(Operator& op, const GatedProduct& a, bool logical) {
  const Slot in = op.in("x", a.x), w = op.in("weight", a.weight, matrix_walk(a.weight));
  op.absent("bias", a.bias);
  op.absent("offset", a.offset);
  const Slot scale = op.in("weightScale", a.weight_scale), tokens = op.in("xScale", a.x_scale),
             list = op.in("groupList", a.groups);
  const Slot out = op.out("output", a.out), out_scale = op.out("outputScale", a.out_scale);
  op.absent("outputOffset", a.out_offset);
  if (!op.ok()) return op.status();
  for (const Slot slot : {in, w, out}) op.dtype(slot, {kInt8});
  for (const Slot slot : {tokens, out_scale}) op.dtype(slot, {kFloat});
  op.dtype(scale, {kFloat, kBf16});
  op.dtype(list, {kInt64});
  op.rank(in, 2, 2);
  op.valid(op[w].fractal(), "weight must be FRACTAL_NZ (29), not format " + std::to_string(op[w].format));
  op.valid(op[w].packed(), "weight must not be transposed");
  if (!op.ok()) return op.status();
  const bool blocks = op[w].rank() == 5 && !logical;
  op.obeys(Rule::GatedProductView, blocks || logical, "its view is " + text_of(op[w].shape));
  if (!blocks) op.rank(w, 3, 3);
  if (!blocks) check_fractal(op, w, "weight");
  if (!op.ok()) return op.status();
  const View stack = blocks ? of_blocks(op[w]) : op[w];
  op.valid(!blocks || op[w].storage == op[w].shape, "view and storage of the weight differ");
  op.valid(!blocks || (op[w].dim(3) == 16 && op[w].dim(4) == 32), "its blocks are " + text_of(op[w].shape));
  const int64_t rows = op[in].dim(0), depth = op[in].dim(1), experts = stack.dim(0), columns = stack.dim(2),
                half = columns / 2;
  op.obeys(Rule::GroupedFractalAlign, depth % 16 == 0 && columns % 32 == 0,
           "K is " + std::to_string(depth) + ", N " + std::to_string(columns));
  op.obeys(Rule::GroupedRows, depth <= 65535, std::to_string(depth));
  op.valid(stack.dim(1) == depth, "x " + text_of(op[in].shape) + " and weight " + text_of(stack.shape) + " do not fit");
  op.tiled(columns <= 10240 && columns % 2 == 0,
           "weight has " + std::to_string(columns) + " columns; an even number up to 10240 may be");
  op.shape(scale, {experts, columns});
  op.shape(tokens, {rows});
  op.shape(list, {experts});
  op.shape(out, {rows, half});
  op.shape(out_scale, {rows});
  const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(depth) * static_cast<double>(columns);
  const std::string name = op.name();
  return op.finish(
      Unit::CubeInt8, operations,
      [=](const Operands& v) {
        const View weights = blocks ? of_blocks(v[w]) : v[w];
        const std::vector<float> scales = read(v[scale]), factors = read(v[tokens]);
        std::vector<int32_t> sums;
        std::vector<float> gated(static_cast<size_t>(half));
        std::vector<int8_t> bytes(gated.size());
        const auto groups = groups_of(read<int64_t>(v[list]), 0, rows, experts, name);
        for (const Group& group : groups) {
          sums.resize(static_cast<size_t>((group.to - group.from) * columns));
          if (sums.empty()) continue;
          multiply(rows_of(v[in], group), weight_of(weights, group.expert), sums.data());
          for (int64_t row = group.from; row < group.to; ++row) {
            const auto value = [&](int64_t n) {
              return static_cast<float>(sums[static_cast<size_t>((row - group.from) * columns + n)]) *
                     scales[static_cast<size_t>(group.expert * columns + n)] * factors[static_cast<size_t>(row)];
            };
            for (int64_t i = 0; i < half; ++i) {
              const float gate = value(i);
              gated[static_cast<size_t>(i)] = gate / (1 + std::exp(-gate)) * value(half + i);
            }
            const float s = quantise_row(gated.data(), half, bytes.data());
            write_row(v[out], row, half, bytes.data());
            write_row(v[out_scale], row, 1, &s);
          }
        }
      },
      op.bytes_of_all() - idle_bytes(stack, rows));
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnGroupedMatmulV4GetWorkspaceSize(
    Tensors x, Tensors weight, Tensors biasOptional, Tensors scaleOptional, Tensors offsetOptional,
    Tensors antiquantScaleOptional, Tensors antiquantOffsetOptional, Tensors perTokenScaleOptional,
    Tensor groupListOptional, Tensors activationInputOptional, Tensors activationQuantScaleOptional,
    Tensors activationQuantOffsetOptional, int64_t splitItem, int64_t groupType, int64_t groupListType, int64_t actType,
    aclTensorList* out, aclTensorList* activationFeatureOutOptional, aclTensorList* dynQuantScaleOutOptional,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnGroupedMatmulV4", workspaceSize, executor);
  return grouped_product(op,
                         {x, weight, biasOptional, scaleOptional, offsetOptional, antiquantScaleOptional,
                          antiquantOffsetOptional, perTokenScaleOptional, groupListOptional, activationInputOptional,
                          activationQuantScaleOptional, activationQuantOffsetOptional, splitItem, groupType,
                          groupListType, actType, out, activationFeatureOutOptional, dynQuantScaleOutOptional},
                         false);
}
ACLNN_PHASE2(aclnnGroupedMatmulV4);

aclnnStatus aclnnGroupedMatmulV5GetWorkspaceSize(
    Tensors x, Tensors weight, Tensors biasOptional, Tensors scaleOptional, Tensors offsetOptional,
    Tensors antiquantScaleOptional, Tensors antiquantOffsetOptional, Tensors perTokenScaleOptional,
    Tensor groupListOptional, Tensors activationInputOptional, Tensors activationQuantScaleOptional,
    Tensors activationQuantOffsetOptional, int64_t splitItem, int64_t groupType, int64_t groupListType, int64_t actType,
    aclIntArray* tuningConfigOptional, aclTensorList* out, aclTensorList* activationFeatureOutOptional,
    aclTensorList* dynQuantScaleOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnGroupedMatmulV5", workspaceSize, executor, Since::Cann85);
  op.ints("tuningConfigOptional", tuningConfigOptional, false);
  return grouped_product(op,
                         {x, weight, biasOptional, scaleOptional, offsetOptional, antiquantScaleOptional,
                          antiquantOffsetOptional, perTokenScaleOptional, groupListOptional, activationInputOptional,
                          activationQuantScaleOptional, activationQuantOffsetOptional, splitItem, groupType,
                          groupListType, actType, out, activationFeatureOutOptional, dynQuantScaleOutOptional},
                         true);
}
ACLNN_PHASE2(aclnnGroupedMatmulV5);

aclnnStatus aclnnGroupedMatmulSwigluQuantGetWorkspaceSize(Tensor x, Tensor weight, Tensor bias, Tensor offset,
                                                          Tensor weightScale, Tensor xScale, Tensor groupList,
                                                          TensorRef output, TensorRef outputScale,
                                                          TensorRef outputOffset, uint64_t* workspaceSize,
                                                          aclOpExecutor** executor) {
  Operator op("aclnnGroupedMatmulSwigluQuant", workspaceSize, executor);
  return gated_product(op, {x, weight, bias, offset, weightScale, xScale, groupList, output, outputScale, outputOffset},
                       false);
}
ACLNN_PHASE2(aclnnGroupedMatmulSwigluQuant);

aclnnStatus aclnnGroupedMatmulSwigluQuantWeightNZGetWorkspaceSize(Tensor x, Tensor weight, Tensor bias, Tensor offset,
                                                                  Tensor weightScale, Tensor xScale, Tensor groupList,
                                                                  TensorRef output, TensorRef outputScale,
                                                                  TensorRef outputOffset, uint64_t* workspaceSize,
                                                                  aclOpExecutor** executor) {
  Operator op("aclnnGroupedMatmulSwigluQuantWeightNZ", workspaceSize, executor, Since::Cann85);
  return gated_product(op, {x, weight, bias, offset, weightScale, xScale, groupList, output, outputScale, outputOffset},
                       true);
}
ACLNN_PHASE2(aclnnGroupedMatmulSwigluQuantWeightNZ);

}  // extern "C"
