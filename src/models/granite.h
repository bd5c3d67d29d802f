// What Granite's generations share: the scales of embeddings, branches, scores and logits. Plain functions; any thread.
#pragma once

#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"

namespace reprise::models::granite {

Status read_scales(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out);
Status add_scales(checkpoint::GgufFields& in);
DecoderTraits traits_of(const checkpoint::ModelConfigFields& f);

}  // namespace reprise::models::granite
