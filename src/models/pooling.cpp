#include "models/pooling.h"

#include "nn/encoder.h"

namespace reprise::models {
namespace {

using checkpoint::PoolKind;

// How likely one token is and not the other.
Tensor yes_or_no(const ModelConfig& config, const PooledParts& parts, Tensor row) {
  const auto logit = [&](int64_t token) { return nn::linear_f32(row, parts.head_row(token)); };
  return nn::sigmoid(nn::add(logit(config.pooling.yes), nn::scale(logit(config.pooling.no), -1)));
}

// Vectors are few, so that their layers are in fp32 whatever the model's dtype is.
Tensor dense(Tensor x, const checkpoint::DenseFields& d, const nn::ParamScope& p) {
  const Tensor weight = p.param("weight", {Dim(d.out), Dim(d.in)}, DType::F32);
  const Tensor y = nn::linear(x, weight, d.bias ? p.param("bias", {Dim(d.out)}, DType::F32) : Tensor{});
  return d.tanh ? nn::softcap(y, 1) : y;
}

}  // namespace

ModelOutputs pooled_outputs(const ModelConfig& config, const PooledParts& parts, nn::StepInputs& in,
                            const nn::ParamScope& root) {
  const checkpoint::PoolingFields& p = config.pooling;
  const auto finished = [&](Tensor vectors) {
    for (size_t i = 0; i < p.dense.size(); ++i)
      vectors = dense(vectors, p.dense[i], root / "dense" / static_cast<int64_t>(i) / "linear");
    return p.normalise ? nn::l2_normalize(vectors) : vectors;
  };
  // Only where the rows of a text are mixed do all of them go through the norm.
  if (p.kind == PoolKind::Mean || p.kind == PoolKind::First) {
    const Tensor rows = parts.norm(parts.rows);
    return {.pooled = finished(
                nn::pool_rows(rows, in.cu_seqlens, in.last_rows, p.kind == PoolKind::Mean ? "mean" : "first"))};
  }
  const Tensor last = parts.norm(nn::index_select(parts.rows, in.last_rows));
  if (p.kind == PoolKind::YesNo) return {.hidden = last, .pooled = yes_or_no(config, parts, last)};
  return {.hidden = last, .pooled = finished(nn::as_f32(last))};
}

}  // namespace reprise::models
