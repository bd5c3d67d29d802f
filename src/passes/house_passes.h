// The passes of the house that are more than one rewrite. Each function makes a Pass; pipeline.cpp puts them in order.
// The pass manager owns the passes and runs them on one thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/quantisation.h"
#include "passes/pass.h"
#include "passes/rewrite.h"
#include "passes/shard_over_ranks.h"

namespace reprise {

// Required when there are slots: every linear on a parameter is followed by lora_shrink and lora_expand on inputs
// "lora.MODULE.a", ".b", ".ranks" and ".scales", which belong to the owner of the slots. `ids` is the step's input
// that names a slot for each row. Before all passes that make other ops of linears. Heads with wide results and linears
// whose result chooses experts are left out.
struct LoraSlots {
  int64_t count = 0;  // 0: none
  int64_t rank = 0;   // the most that an adapter in a slot may have
  std::string_view ids;
};
constexpr std::string_view kLoraPrefix = "lora.";
Pass add_lora(LoraSlots slots);
// Where linears were packed, what adds to slices of the result adds to it in place of them, so that fusions find the
// slices as they are without adapters.
Pass lora_before_slices();

// What canonicalise() looks for: views that undo each other, copies that are not needed, 1 / (1 / x).
std::vector<Rewrite> canonical_rewrites();
Pass canonicalise();

// Pure calls of the same op on the same operands with the same attributes become one.
Pass common_subexpressions();

// index_select(f(x)) becomes f(index_select(x)) as long as nothing else reads f(x): only the wanted rows are computed,
// and the last norm stands behind its addition again.
Pass hoist_row_gather();

// RMS norms for which the plan has a bias add it. Required. Behind hoist_row_gather, before the fusions.
Pass add_norm_biases(std::shared_ptr<const checkpoint::QuantPlan> plan);

// Linears that the plan quantises quantise their input, once for all of them with the same numbers, and multiply int8.
// Required; null: nothing is quantised. Behind the passes that move float ops, before those that pack and fuse.
Pass quantise_linears(std::shared_ptr<const checkpoint::QuantPlan> plan);

// Linears that read the same tensor become one linear on a packed parameter, followed by slices of its columns.
Pass pack_parallel_linears();

// Required when asked for: the input of every linear on a parameter becomes the output kObserved + the name of that.
Pass observe_linears();
constexpr std::string_view kObserved = "observed:";

// Required when asked for: the borders of every moe_route become the output kExpertStarts + where its router is.
Pass observe_experts();
constexpr std::string_view kExpertStarts = "expert_starts:";

// Required when asked for: attention over latents is followed by the same with keys and values expanded, and every
// sequence of a step goes through the one that is fewer operations. Results round differently.
Pass expand_latents();

// The graph returns "next_tokens", the argmax of the logits, as well. It has a call of its own that makes the logits,
// so that the two may become one kernel; share_head() drops that call where they have not. Both are required.
// Over several ranks each finds the largest of its own logits, and these are compared: logits are not gathered for it.
Pass greedy_head(RankShare ranks);
Pass share_head();

// Required: a device without a kernel for it loses the output "sampled" and what belongs to that.
Pass sampling_head();

// Required when asked for: whether each row of the output "hidden" is finite, as an output of every head that chooses
// tokens: its name and kFiniteRows. Not where the device has no kernel for that.
Pass finite_head();
constexpr std::string_view kFiniteRows = ".finite";

// Where a device quantises a norm by vectors that it divides by, add_rms_norm_quant_static gets them from the loader,
// not from conversions in every launch.
Pass load_quant_divisors();

// A fused op that the device has no kernel for becomes what it means. Required.
Pass legalise();

// Caches of keys and values become one of keys and one of values, for devices with kernels on those alone. Required;
// behind legalise(), which takes apart the fused ops that write into a cache.
Pass split_kv_caches();

// Where a device's kernels convert the angles of rotations and the slots in every layer, that is done once a step.
// Behind the fusions.
Pass convert_once();

// Required: dead nodes would ask for kernels and memory.
Pass dead_code();

// Independent branches go on the side stream, and every launch gets the waits that it needs (graph/streams.h). Behind
// all passes that change launches: they would have to keep the waits.
Pass assign_streams();

// While device memory idles, the weights of the next product are read ahead into the device's cache, at most so many
// bytes at a time, where that saves more than it costs what runs meanwhile. `keys`: of each row's context, as assumed.
// Last of all: it keeps the waits that are there.
Pass insert_prefetch(int64_t most_bytes, int64_t keys);

}  // namespace reprise
