// Fused ops that end in int8, and the head of a quantised model.
#include "nn/functional.h"
#include "nn/fused/list.h"

namespace reprise::nn {
namespace {

constexpr int64_t kWidth = 44, kVocabulary = 68;
constexpr double kEps = 0.0123;

TensorType rows_of(int64_t width) { return {DType::BF16, {example_tokens(), Dim(width)}}; }
TensorType vector_of(DType dtype, int64_t width) { return {dtype, {Dim(width)}}; }

FusedExample static_example(int64_t scale_width, bool bias) {
  const TensorType scale = vector_of(DType::F32, scale_width), vector = vector_of(DType::BF16, kWidth);
  FusedExample e{example_symbols(), {rows_of(kWidth), rows_of(kWidth), vector, scale, scale}, {{"eps", kEps}}};
  if (bias) e.in.push_back(vector);
  return e;
}

FusedExample dynamic_example(bool bias) {
  const TensorType vector = vector_of(DType::BF16, kWidth);
  FusedExample e{example_symbols(), {rows_of(kWidth), rows_of(kWidth), vector}, {{"eps", kEps}}};
  if (bias) e.in.push_back(vector);
  return e;
}

Tensor gate_times_up(Tensor gate_up) {
  const int64_t width = gate_up.dim(-1).factor, half = width / 2;
  if (width % 2 != 0) gate_up.tracer()->fail(invalid("a width of {} has no two halves", width));
  return mul(silu(slice(gate_up, 0, half)), slice(gate_up, half, half));
}

FusedExample silu_static_example(int64_t scale_width) {
  const TensorType scale = vector_of(DType::F32, scale_width);
  return {example_symbols(), {rows_of(2 * kWidth), scale, scale}, {}};
}

// The dtype between the product and the gate is bf16, f16 or f32: no other op of the meaning has that as an attribute.
FusedExample experts_example() {
  constexpr int64_t kInner = 68, kExperts = 7;
  return {example_symbols(),
          {{DType::I8, {Dim(3, 1), Dim(kInner)}},
           {DType::F32, {Dim(3, 1), Dim(1)}},
           {DType::I32, {Dim(kExperts + 1)}},
           {DType::I8, {Dim(kExperts), Dim(2 * kWidth), Dim(kInner)}},
           vector_of(DType::F32, 2 * kWidth * kExperts)},
          {{"out", std::string("f16")}, {"shard", std::string("row")}}};
}

}  // namespace

void add_quantised_ops(FusedOps& ops) {
  ops.add(
      {"grouped_silu_mul_quant(Tensor x, Tensor x_scale, Starts starts, Weight weight, Tensor scale, *, "
       "str out, str shard = none) -> (Tensor, Tensor)",
       "i8 [S, K], f32 [S, 1], [E + 1], i8 [E, 2 F, K], f32 [2 E F] -> i8 [S, F], f32 [S, 1]: "
       "grouped_linear_w8a8_dynamic to `out`, silu(first half) * second half, quantised with a scale per row",
       [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
         const Attrs attrs{{"out", at.text("out")}, {"shard", at.text("shard")}};
         const std::vector<Tensor> operands(in.begin(), in.end());
         Tensor product = in[0].tracer()->call("grouped_linear_w8a8_dynamic", operands, attrs)[0];
         const Quantized q = quantize_dynamic(gate_times_up(product));
         return {q.values, q.scale};
       },
       {experts_example()}});
  ops.add(
      {"add_rms_norm_quant_static(Tensor x, Tensor r, Tensor weight, Tensor scale, Tensor offset, Tensor? bias, *, "
       "float eps) -> (Tensor, Tensor) : commutes",
       "[T, N], [T, N], [N], [N] or [1] f32, [N] or [1] f32, [N]? -> i8 [T, N], [T, N]: sum = x + r, its RMS norm "
       "quantised with the given scale and offset; and the sum",
       [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
         Tensor sum = add(in[0], in[1]);
         return {quantize_static(rms_norm(sum, in[2], at.number("eps"), in[5]), in[3], in[4]), sum};
       },
       {static_example(kWidth, false), static_example(1, false), static_example(kWidth, true),
        static_example(1, true)}});
  ops.add(
      {"add_rms_norm_quant_dynamic(Tensor x, Tensor r, Tensor weight, Tensor? bias, *, float eps) -> (Tensor, Tensor, "
       "Tensor) : commutes",
       "[T, N], [T, N], [N], [N]? -> i8 [T, N], f32 [T, 1], [T, N]: sum = x + r, its RMS norm quantised with a scale "
       "per row; and the sum",
       [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
         Tensor sum = add(in[0], in[1]);
         const Quantized q = quantize_dynamic(rms_norm(sum, in[2], at.number("eps"), in[3]));
         return {q.values, q.scale, sum};
       },
       {dynamic_example(false), dynamic_example(true)}});
  ops.add({"silu_mul_quant(Tensor gate_up) -> (Tensor, Tensor)",
           "[T, 2 F] -> i8 [T, F], f32 [T, 1]: silu(first half) * second half, quantised with a scale per row",
           [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
             const Quantized q = quantize_dynamic(gate_times_up(in[0]));
             return {q.values, q.scale};
           },
           {{example_symbols(), {rows_of(2 * kWidth)}, {}}}});
  ops.add({"silu_mul_quant_static(Tensor gate_up, Tensor scale, Tensor offset) -> Tensor",
           "[T, 2 F], [F] or [1] f32, [F] or [1] f32 -> i8 [T, F]: silu(first half) * second half, quantised with the "
           "given scale and offset",
           [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
             return {quantize_static(gate_times_up(in[0]), in[1], in[2])};
           },
           {silu_static_example(kWidth), silu_static_example(1)}});
  ops.add({"lm_head_argmax_w8a8(Tensor x, Tensor x_scale, Weight weight, Tensor scale) -> Tensor",
           "i8 [L, K], [L, 1] f32, i8 [V, K], [V] f32 -> [L] i32: the token with the largest logit (fp32), the "
           "smallest index on ties",
           [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
             return {argmax(linear_w8a8_dynamic({in[0], in[1]}, in[2], in[3], DType::F32, {}, Shard::Column))};
           },
           {{example_symbols(),
             {{DType::I8, {example_tokens(), Dim(kWidth)}},
              {DType::F32, {example_tokens(), Dim(1)}},
              {DType::I8, {Dim(kVocabulary), Dim(kWidth)}},
              vector_of(DType::F32, kVocabulary)},
             {}}}});
}

}  // namespace reprise::nn
