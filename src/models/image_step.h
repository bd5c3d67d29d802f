// What a model with a vision tower declares of a step with prompts, besides what every decoder does: rows of images and
// where they stand. Stateless.
#pragma once

#include "models/model.h"

namespace reprise::models {

// "image_index" [T]: the row of "image_rows" [T, N], and of "deep.<k>", that a token is; text is the row behind those
// of images, which is zeros. "text_rows" [T, 1]: 1 for text, 0 for images. "positions3" [T, 3]. Only where
// TraceOptions::images asks for them. Not every device has zeros for an index that is none.
void declare_images(const ModelConfig& config, const TraceOptions& trace, StepSpec& step);

// Embeddings with rows of images in the places of their tokens; deepstack rows added behind layer `layer`; the table of
// angles. Of a step without images what a decoder has.
Tensor with_images(Tensor embeddings, const nn::StepInputs& in);
Tensor with_deep_rows(const ModelConfig& config, Tensor x, int64_t layer, const nn::StepInputs& in);
Tensor image_rope_table(const ModelConfig& config, const nn::StepInputs& in);

}  // namespace reprise::models
