// Ops of a mixture of experts: which experts a token goes to, how rows get to them and back, and products in which
// every group of rows has a matrix of its own. An accelerator's gating, routing, grouped product and finalising ops are
// these or a few of them together.
#include "ops/experts.h"

#include "ops/kernel.h"
#include "ops/want.h"

namespace reprise {
namespace {

constexpr int64_t kMaxExperts = 4096;

Status want_one_of(const OpCall& c, std::string_view attr, std::initializer_list<std::string_view> allowed) {
  const std::string& value = c.attrs->text(attr);
  std::string names;
  for (std::string_view a : allowed) {
    if (a == value) return Status::ok();
    names += fmt::format("{}{}", names.empty() ? "" : ", ", a);
  }
  return invalid("{}: {} \"{}\"; allowed: {}", describe(c), attr, value, names);
}

Result<Types> infer_moe_gate(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_dtype(c, 0, DType::F32));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_index(c, 1));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of logits"));
  const int64_t experts = c.in[0].shape[1].factor;
  if (experts > kMaxExperts) return invalid("{}: more than {} experts", describe(c), kMaxExperts);
  if (c.in.size() > 2) {
    RETURN_IF_ERROR(want_rank(c, 2, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, 2, DType::F32));
    RETURN_IF_ERROR(want_dim(c, 2, 0, c.in[0].shape[1], "number of experts"));
  }
  RETURN_IF_ERROR(want_one_of(c, "score", {"softmax", "sigmoid"}));
  RETURN_IF_ERROR(want_one_of(c, "group_score", {"max", "top2"}));
  RETURN_IF_ERROR(want_range(c, "normalise", 0, 1));
  RETURN_IF_ERROR(want_range(c, "groups", 1, experts));
  const int64_t groups = c.attrs->integer("groups");
  if (experts % groups != 0)
    return invalid("{}: {} experts are not divided by {} groups", describe(c), experts, groups);
  RETURN_IF_ERROR(want_range(c, "top_groups", 1, groups));
  RETURN_IF_ERROR(want_range(c, "top_k", 1, c.attrs->integer("top_groups") * (experts / groups)));
  const Shape chosen{c.in[0].shape[0], Dim(c.attrs->integer("top_k"))};
  return Types{{DType::F32, chosen}, {DType::I32, chosen}};
}

Result<Types> infer_moe_route(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_index(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_range(c, "count", 1, kMaxExperts));
  RETURN_IF_ERROR(want_range(c, "first", 0, kMaxExperts));
  const Shape& s = c.in[0].shape;
  return Types{{DType::I32, {Dim(s[0].factor * s[1].factor, s[0].symbol)}},
               {DType::I32, s},
               {DType::I32, {Dim(c.attrs->integer("count") + 1)}}};
}

// x in operand 0, borders of the groups in `starts`, the stack of matrices in `weight`, whose inner size is `depth`.
Status want_groups(const OpCall& c, size_t starts, size_t weight, Dim depth) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_rank(c, starts, 1, 1));
  RETURN_IF_ERROR(want_index(c, starts));
  RETURN_IF_ERROR(want_rank(c, weight, 3, 3));
  for (int d = 0; d < 3; ++d) RETURN_IF_ERROR(want_constant(c, weight, d));
  RETURN_IF_ERROR(want_dim(c, starts, 0, Dim(c.in[weight].shape[0].factor + 1), "number of matrices and one more"));
  RETURN_IF_ERROR(want_dim(c, 0, 1, depth, "weight's inner size"));
  return want_shard(c);
}

Result<Types> infer_grouped_linear_blocks(const OpCall& c) {
  ASSIGN_OR_RETURN(const int64_t depth, want_blocks(c, 2));
  RETURN_IF_ERROR(want_groups(c, 1, 2, Dim(depth)));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_activations(c));
  return Types{{c.in[0].dtype, {c.in[0].shape[0], c.in[2].shape[1]}}};
}

Result<Types> infer_add_groups(const OpCall& c) {
  for (size_t i : {0, 2}) RETURN_IF_ERROR(want_rank(c, i, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_same_dtype(c, 0, 2));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_index(c, 1));
  for (int d : {0, 1}) RETURN_IF_ERROR(want_constant(c, 2, d));
  RETURN_IF_ERROR(want_dim(c, 1, 0, Dim(c.in[2].shape[0].factor + 1), "number of groups and one more"));
  RETURN_IF_ERROR(want_dim(c, 2, 1, c.in[0].shape[1], "row size of x"));
  return Types{c.in[0]};
}

Result<Types> infer_grouped_linear(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 2, 3, 3));
  RETURN_IF_ERROR(want_groups(c, 1, 2, c.in[2].shape[2]));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_same_dtype(c, 0, 2));
  return Types{{c.in[0].dtype, {c.in[0].shape[0], c.in[2].shape[1]}}};
}

// The weight in operand `weight`, one scale per row of every matrix behind it.
Result<Types> infer_int8_groups(const OpCall& c, size_t weight) {
  RETURN_IF_ERROR(want_rank(c, weight, 3, 3));
  RETURN_IF_ERROR(want_groups(c, weight - 1, weight, c.in[weight].shape[2]));
  for (size_t i : {size_t{0}, weight}) RETURN_IF_ERROR(want_dtype(c, i, DType::I8));
  const Shape& stack = c.in[weight].shape;
  if (stack[2].factor > kMaxW8A8Depth)
    return invalid("{}: an inner size above {} may overflow the int32 sums", describe(c), kMaxW8A8Depth);
  RETURN_IF_ERROR(want_dtype(c, weight + 1, DType::F32));
  for (size_t i = weight + 1; i < c.in.size(); ++i) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_dim(c, i, 0, Dim(stack[0].factor * stack[1].factor), "number of rows of all matrices"));
  }
  ASSIGN_OR_RETURN(const DType out, parse_dtype(c.attrs->text("out")));
  if (out != DType::F32 && out != DType::BF16 && out != DType::F16)
    return invalid("{}: out {}; allowed: f32, bf16, f16", describe(c), dtype_name(out));
  return Types{{out, {c.in[0].shape[0], stack[1]}}};
}

Result<Types> infer_grouped_linear_w8a8_dynamic(const OpCall& c) {
  ASSIGN_OR_RETURN(Types out, infer_int8_groups(c, 3));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::F32));
  RETURN_IF_ERROR(want_rank(c, 1, 2, 2));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(1), "one scale per row"));
  return out;
}

Result<Types> infer_grouped_linear_w8a8_static(const OpCall& c) {
  ASSIGN_OR_RETURN(Types out, infer_int8_groups(c, 2));
  RETURN_IF_ERROR(want_dtype(c, 4, DType::I32));
  return out;
}

Result<Types> infer_quantize_groups(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  RETURN_IF_ERROR(want_rank(c, 1, 1, 1));
  RETURN_IF_ERROR(want_index(c, 1));
  for (size_t i : {2, 3}) {
    RETURN_IF_ERROR(want_rank(c, i, 1, 1));
    RETURN_IF_ERROR(want_dtype(c, i, DType::F32));
    RETURN_IF_ERROR(want_constant(c, i, 0));
    RETURN_IF_ERROR(want_dim(c, 1, 0, Dim(c.in[i].shape[0].factor + 1), "number of groups and one more"));
  }
  return Types{{DType::I8, c.in[0].shape}};
}

Result<Types> infer_moe_combine(const OpCall& c) {
  RETURN_IF_ERROR(want_rank(c, 0, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_constant(c, 0, 1));
  for (size_t i : {1, 2}) {
    RETURN_IF_ERROR(want_rank(c, i, 2, 2));
    RETURN_IF_ERROR(want_constant(c, i, 1));
  }
  RETURN_IF_ERROR(want_dtype(c, 1, DType::F32));
  RETURN_IF_ERROR(want_index(c, 2));
  const Shape& s = c.in[2].shape;
  for (int d : {0, 1}) RETURN_IF_ERROR(want_dim(c, 1, d, s[d], "same of place"));
  RETURN_IF_ERROR(want_dim(c, 0, 0, Dim(s[0].factor * s[1].factor, s[0].symbol), "number of places"));
  return Types{{c.in[0].dtype, {s[0], c.in[0].shape[1]}}};
}

Result<Types> infer_sigmoid(const OpCall& c) {
  RETURN_IF_ERROR(want_float(c, 0));
  return Types{c.in[0]};
}

Result<Types> infer_scale_rows(const OpCall& c) {
  for (size_t i : {0, 1}) RETURN_IF_ERROR(want_rank(c, i, 2, 2));
  RETURN_IF_ERROR(want_float(c, 0));
  RETURN_IF_ERROR(want_dtype(c, 1, DType::F32));
  RETURN_IF_ERROR(want_dim(c, 1, 0, c.in[0].shape[0], "number of rows of x"));
  RETURN_IF_ERROR(want_dim(c, 1, 1, Dim(1), "one scale per row"));
  return Types{c.in[0]};
}

}  // namespace

void register_expert_ops(OpRegistry& ops) {
  ops.add(
      "moe_gate(Tensor logits, Index slots, Tensor? bias, *, int top_k, str score = softmax, int normalise = 0, "
      "float scale = 1, float eps = 0, int groups = 1, int top_groups = 1, str group_score = max) -> "
      "(Tensor, Tensor) : routes",
      infer_moe_gate,
      "f32 [T, E], [T], f32 [E]? -> f32 [T, k], i32 [T, k]: weights and experts, the best first, the smaller index on "
      "ties. Chosen by score (softmax or sigmoid) + bias among the top_groups of groups with the best expert (max) or "
      "pair (top2); the weight is the score, normalised / (sum over k + eps), * scale. A row with a negative slot is "
      "padding: weights 0, expert E");
  ops.add("moe_route(Index experts, *, int first = 0, int count) -> (Tensor, Tensor, Tensor) : dispatches",
          infer_moe_route,
          "[T, k] -> i32 [T k], i32 [T, k], i32 [count + 1]: rows sorted by expert and then by their order: the row of "
          "x that each reads, the place of every choice, the first row of each expert. Other experts than [first, "
          "first + count) take no place: -1, and rows left over read -1");
  ops.add("grouped_linear(Tensor x, Starts starts, Weight weight, *, str shard = none) -> Tensor : linear",
          infer_grouped_linear,
          "[S, K], [E + 1], [E, N, K] -> [S, N]: rows [starts[e], starts[e + 1]) times weight[e]^T, each as in linear; "
          "rows of no group are zeros");
  ops.add(
      "grouped_linear_blocks(Tensor x, Starts starts, Weight weight, *, str format, str activations = same, "
      "str shard = none) -> Tensor : linear",
      infer_grouped_linear_blocks,
      "[S, K], [E + 1], u8 [E, N, bytes of a row] -> [S, N]: grouped_linear of weights in GGUF blocks, each row as in "
      "linear_blocks");
  ops.add(
      "add_groups(Tensor x, Starts starts, Tensor bias) -> Tensor : columns", infer_add_groups,
      "[S, N], [E + 1], [E, N] -> [S, N]: rows [starts[e], starts[e + 1]) and bias[e], added in fp32, rounded once; "
      "rows of no group are zeros");
  ops.add(
      "grouped_linear_w8a8_dynamic(Tensor x, Tensor x_scale, Starts starts, Weight weight, Tensor scale, *, str out, "
      "str shard = none) -> Tensor : linear",
      infer_grouped_linear_w8a8_dynamic,
      "i8 [S, K], f32 [S, 1], [E + 1], i8 [E, N, K], f32 [E N] -> [S, N]: grouped_linear of int8, each row as in "
      "linear_w8a8_dynamic");
  ops.add(
      "grouped_linear_w8a8_static(Tensor x, Starts starts, Weight weight, Tensor scale, Tensor bias, *, str out, "
      "str shard = none) -> Tensor : linear",
      infer_grouped_linear_w8a8_static,
      "i8 [S, K], [E + 1], i8 [E, N, K], f32 [E N], i32 [E N] -> [S, N]: grouped_linear of int8, each row as in "
      "linear_w8a8_static");
  ops.add("quantize_groups(Tensor x, Starts starts, Tensor scale, Tensor offset) -> Tensor", infer_quantize_groups,
          "[S, K], [E + 1], f32 [E], f32 [E] -> i8 [S, K]: quantize_static of rows [starts[e], starts[e + 1]) with "
          "scale[e] and offset[e]; rows of no group are zeros");
  ops.add("moe_combine(Tensor y, Tensor weights, Index place) -> Tensor : columns combines", infer_moe_combine,
          "[T k, N], f32 [T, k], [T, k] -> [T, N]: sum of weights[t, j] * y[place[t, j]] in ascending j, fp32, rounded "
          "once; a negative place adds nothing");
  ops.add("sigmoid(Tensor x) -> Tensor", infer_sigmoid, "1 / (1 + exp(-x)) in fp32, rounded once");
  ops.add("scale_rows(Tensor x, Tensor scale) -> Tensor : columns", infer_scale_rows,
          "[T, N], f32 [T, 1] -> [T, N]: x[t] * scale[t] in fp32, rounded once");
}

}  // namespace reprise
