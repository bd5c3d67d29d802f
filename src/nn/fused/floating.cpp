// Fused ops around norms, the gated MLP, the residual and the head, all in the model's dtype.
#include "nn/functional.h"
#include "nn/fused/list.h"
#include "ops/block_activations.h"

namespace reprise::nn {
namespace {

constexpr int64_t kWidth = 44, kInner = 68;
constexpr double kEps = 0.0123;

TensorType rows_of(DType dtype, int64_t width) { return {dtype, {example_tokens(), Dim(width)}}; }
TensorType matrix(DType dtype, int64_t rows, int64_t columns) { return {dtype, {Dim(rows), Dim(columns)}}; }

Tensor gate_times_up(Tensor gate_up) {
  const int64_t width = gate_up.dim(-1).factor;
  if (width % 2 != 0) gate_up.tracer()->fail(invalid("a width of {} has no two halves", width));
  return mul(silu(slice(gate_up, 0, width / 2)), slice(gate_up, width / 2, width / 2));
}

}  // namespace

void add_float_ops(FusedOps& ops) {
  const DType t = DType::BF16;
  const FusedExample gated{
      example_symbols(), {rows_of(t, kInner), matrix(t, 2 * kWidth, kInner)}, {{"shard", std::string("column")}}};
  ops.add({"linear_silu_mul(Tensor x, Weight weight, *, str shard = none) -> Tensor : device_form",
           "[T, K], [2 F, K] -> [T, F]: silu_mul of linear(x, weight), rounded wherever these round",
           [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
             return {gate_times_up(in[0].tracer()->call("linear", {in[0], in[1]}, {{"shard", at.text("shard")}})[0])};
           },
           {gated}});
  const FusedExample norm{
      example_symbols(), {rows_of(t, kWidth), rows_of(t, kWidth), {t, {Dim(kWidth)}}}, {{"eps", kEps}}};
  FusedExample norm_biased = norm;
  norm_biased.in.push_back({t, {Dim(kWidth)}});
  ops.add(
      {"add_rms_norm(Tensor x, Tensor r, Tensor weight, Tensor? bias, *, float eps) -> (Tensor, Tensor) "
       ": commutes",
       "[T, N], [T, N], [N], [N]? -> [T, N], [T, N]: sum = x + r, rounded; its RMS norm, and the sum",
       [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
         Tensor sum = add(in[0], in[1]);
         return {rms_norm(sum, in[2], at.number("eps"), in[3]), sum};
       },
       {norm, norm_biased}});
  ops.add({"silu_mul(Tensor gate_up) -> Tensor",
           "[T, 2 F] -> [T, F]: silu(first half), rounded, times second half",
           [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> { return {gate_times_up(in[0])}; },
           {{example_symbols(), {rows_of(t, 2 * kWidth)}, {}}}});
  FusedExample plain{example_symbols(),
                     {rows_of(t, kInner), matrix(t, kWidth, kInner), rows_of(t, kWidth)},
                     {{"shard", std::string("row")}}};
  FusedExample biased = plain;
  biased.in.push_back({t, {Dim(kWidth)}});
  ops.add({"linear_add(Tensor x, Weight weight, Tensor residual, Tensor? bias, *, str shard = none) -> Tensor",
           "[T, K], [N, K], [T, N], [N]? -> [T, N]: linear(x, weight, bias), rounded, plus the residual",
           [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
             Tensor y = in[0].tracer()->call("linear", {in[0], in[1], in[3]}, {{"shard", at.text("shard")}})[0];
             return {add(y, in[2])};
           },
           {plain, biased}});
  FusedExample head{example_symbols(), {rows_of(t, kInner), matrix(t, kWidth, kInner)}, {}};
  FusedExample head_f32{example_symbols(), {rows_of(DType::F32, kInner), matrix(DType::F32, kWidth, kInner)}, {}};
  ops.add({"lm_head_argmax(Tensor x, Weight weight) -> Tensor",
           "[L, K], [V, K] -> [L] i32: the token with the largest logit (fp32), the smallest index on ties",
           [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
             return {argmax(linear_f32(in[0], in[1], Shard::Column))};
           },
           {head, head_f32}});
  // Two blocks of q8_0 a row: 64 numbers in 68 bytes.
  FusedExample packed{example_symbols(),
                      {rows_of(DType::BF16, 64), matrix(DType::U8, kWidth, 68)},
                      {{"format", std::string("q8_0")}, {"activations", activations_attr(true)}}};
  FusedExample packed_f32 = packed;
  packed_f32.in[0] = rows_of(DType::F32, 64);
  ops.add({"lm_head_argmax_blocks(Tensor x, Weight weight, *, str format, str activations = same) -> Tensor",
           "[L, K], u8 [V, bytes of a row] -> [L] i32: lm_head_argmax with a weight in GGUF blocks",
           [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
             const bool wide = in[0].dtype() == DType::F32;
             return {argmax(in[0].tracer()->call("linear_blocks", {in[0], in[1]},
                                                 {{"format", at.text("format")},
                                                  {"activations", at.text("activations")},
                                                  {"out", std::string(wide ? "same" : "f32")},
                                                  {"shard", std::string("column")}})[0])};
           },
           {packed, packed_f32}});
}

}  // namespace reprise::nn
