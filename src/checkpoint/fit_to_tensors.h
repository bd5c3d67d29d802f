// fit_to_tensors: what a configuration means for the tensors that are there. Two things are decided by both:
//
//   the head   tie_word_embeddings says that the embedding serves as the head, but a file with another lm_head.weight
//              means that one
//   MTP        the layers behind num_hidden_layers that num_nextn_predict_layers explains (DeepSeek-V3:
//   model.layers.61)
//              predict further tokens; they are set aside, unread
//
// Called once, before the tensors are read. A plain function.
#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"

namespace reprise::checkpoint {

// `nextn_read`: the first of those layers is read for drafts, by another engine.
void fit_to_tensors(ModelConfigFields& config, Checkpoint& checkpoint, bool nextn_read = false);

// The number N of "model.layers.N.rest", and the rest; -1 for other names.
struct LayerName {
  int64_t layer = -1;
  std::string_view rest;
};
LayerName layer_name(std::string_view tensor);

}  // namespace reprise::checkpoint
