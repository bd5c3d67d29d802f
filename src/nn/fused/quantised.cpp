// Fused ops that end in int8.
#include "nn/functional.h"
#include "nn/fused/list.h"

namespace reprise::nn {
namespace {

constexpr int64_t kWidth = 44;
constexpr double kEps = 0.0123;

TensorType rows_of(int64_t width) { return {DType::BF16, {example_tokens(), Dim(width)}}; }
TensorType vector_of(DType dtype, int64_t width) { return {dtype, {Dim(width)}}; }

FusedExample static_example(int64_t scale_width) {
  const TensorType scale = vector_of(DType::F32, scale_width);
  return {example_symbols(),
          {rows_of(kWidth), rows_of(kWidth), vector_of(DType::BF16, kWidth), scale, scale},
          {{"eps", kEps}}};
}

}  // namespace

void add_quantised_ops(FusedOps& ops) {
  ops.add(
      {"add_rms_norm_quant_static(Tensor x, Tensor r, Tensor weight, Tensor scale, Tensor offset, *, float eps) -> "
       "(Tensor, Tensor)",
       op_flag::kCommutes,
       "[T, N], [T, N], [N], [N] or [1] f32, [N] or [1] f32 -> i8 [T, N], [T, N]: sum = x + r, its RMS norm quantised "
       "with the "
       "given scale and offset; and the sum",
       [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
         Tensor sum = add(in[0], in[1]);
         return {quantize_static(rms_norm(sum, in[2], at.number("eps")), in[3], in[4]), sum};
       },
       {static_example(kWidth), static_example(1)}});
  ops.add({"add_rms_norm_quant_dynamic(Tensor x, Tensor r, Tensor weight, *, float eps) -> (Tensor, Tensor, Tensor)",
           op_flag::kCommutes,
           "[T, N], [T, N], [N] -> i8 [T, N], f32 [T, 1], [T, N]: sum = x + r, its RMS norm quantised with a scale per "
           "row; and the sum",
           [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
             Tensor sum = add(in[0], in[1]);
             const Quantized q = quantize_dynamic(rms_norm(sum, in[2], at.number("eps")));
             return {q.values, q.scale, sum};
           },
           {{example_symbols(), {rows_of(kWidth), rows_of(kWidth), vector_of(DType::BF16, kWidth)}, {{"eps", kEps}}}}});
  ops.add({"silu_mul_quant(Tensor gate_up) -> (Tensor, Tensor)",
           op_flag::kNone,
           "[T, 2 F] -> i8 [T, F], f32 [T, 1]: silu(first half) * second half, quantised with a scale per row",
           [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
             const int64_t width = in[0].dim(-1).factor, half = width / 2;
             if (width % 2 != 0) in[0].tracer()->fail(invalid("a width of {} has no two halves", width));
             const Quantized q = quantize_dynamic(mul(silu(slice(in[0], 0, half)), slice(in[0], half, half)));
             return {q.values, q.scale};
           },
           {{example_symbols(), {rows_of(2 * kWidth)}, {}}}});
}

}  // namespace reprise::nn
