// keep_blocks: the part of quantise_linears that leaves weights in GGUF blocks: a parameter becomes the bytes of its
// rows, each linear of it linear_blocks and each embedding embedding_blocks, all of them or none. Stateless.
#pragma once

#include "checkpoint/quantisation.h"
#include "passes/pass.h"

namespace reprise {

Status keep_blocks(Graph& graph, PassContext& context, const checkpoint::QuantPlan& plan, std::string_view pass);

}  // namespace reprise
