// What a model gives in place of logits: one row of fp32 numbers for each sequence, by ModelConfig::pooling. Traced
// like the rest of the model. Stateless.
#pragma once

#include <functional>

#include "models/model.h"
#include "nn/param_scope.h"

namespace reprise::models {

// `norm` is the model's last one, of rows.
struct PooledParts {
  Tensor rows;  // [T, N], before the norm
  std::function<Tensor(Tensor)> norm;
  // The row of the head that gives the logit of a token, [1, N]; only for PoolKind::YesNo.
  std::function<Tensor(int64_t token)> head_row = {};
};
// `root` is that of the model's parameters, beside which those of dense layers stand.
ModelOutputs pooled_outputs(const ModelConfig& config, const PooledParts& parts, nn::StepInputs& in,
                            const nn::ParamScope& root);

}  // namespace reprise::models
