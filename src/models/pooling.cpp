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

}  // namespace

ModelOutputs pooled_outputs(const ModelConfig& config, const PooledParts& parts, nn::StepInputs& in) {
  const checkpoint::PoolingFields& p = config.pooling;
  const auto finished = [&](Tensor vectors) { return p.normalise ? nn::l2_normalize(vectors) : vectors; };
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
