// Fused ops of a mixture of experts.
#include "nn/functional.h"
#include "nn/fused/list.h"

namespace reprise::nn {

void add_expert_ops(FusedOps& ops) {
  constexpr int64_t kInner = 68, kWidth = 44, kExperts = 7;
  const TensorType x{DType::BF16, {example_tokens(), Dim(kInner)}};
  const TensorType token{DType::I32, {Dim(3, 1)}}, starts{DType::I32, {Dim(kExperts + 1)}};
  const TensorType weight{DType::BF16, {Dim(kExperts), Dim(kWidth), Dim(kInner)}};
  ops.add({"grouped_linear_rows(Tensor x, Index token, Starts starts, Weight weight, *, str shard = none) -> Tensor",
           "[T, K], [S], [E + 1], [E, N, K] -> [S, N]: grouped_linear of rows token[s] of x",
           [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
             Tensor sorted = index_select(in[0], in[1]);
             return in[0].tracer()->call("grouped_linear", {sorted, in[2], in[3]}, {{"shard", at.text("shard")}});
           },
           {{example_symbols(), {x, token, starts, weight}, {{"shard", std::string("row")}}}}});
}

}  // namespace reprise::nn
