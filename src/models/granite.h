// What Granite's generations share: the scales of embeddings, branches, scores and logits, and names of
// experts. Plain functions; any thread.
#pragma once

#include "checkpoint/field_reader.h"
#include "checkpoint/gguf_groups.h"
#include "models/decoder.h"

namespace reprise::models::granite {

Status read_scales(const checkpoint::FieldReader& in, checkpoint::ModelConfigFields& out);
Status add_scales(checkpoint::GgufFields& in);
DecoderTraits traits_of(const checkpoint::ModelConfigFields& f);

inline constexpr checkpoint::NameRule kMoeNames[] = {
    {.from = ".block_sparse_moe.", .to = ".mlp."},
    {checkpoint::NameRule::At::End, ".mlp.router.layer.weight", ".mlp.gate.weight"},
    {checkpoint::NameRule::At::End, ".mlp.input_linear.weight", ".mlp.experts.gate_up_proj"},
    {checkpoint::NameRule::At::End, ".mlp.output_linear.weight", ".mlp.experts.down_proj"}};

}  // namespace reprise::models::granite
