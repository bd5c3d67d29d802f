// Entries of a mixture of experts: the choice, the way to the experts and back, products in groups of rows.
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/kernels/moe_shape.h"
#include "backends/cpu/kernels/unit_shape.h"
#include "backends/cpu/register.h"
#include "ops/args/experts.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

Status accepts_gate(const OpCall& c) {
  if (const int64_t groups = c.attrs->integer("groups"); groups > kMaxGateGroups)
    return error(Code::Unsupported, "takes up to {} groups, not {}", kMaxGateGroups, groups);
  return Status::ok();
}

size_t gate_bytes(const MoeGateArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(threads * 2 * gate_row(a.count)) * sizeof(float);
}
size_t route_bytes(const MoeRouteArgs& a, const LiveSizes&, int threads) {
  return static_cast<size_t>(threads * route_row(a.count)) * sizeof(int32_t);
}
// Of 16-bit x, on tile registers or not.
template <bool kTiles, class A>
size_t grouped_bytes(const A& a, const LiveSizes& bound, int threads) {
  const int64_t rows = a.shape.rows.value(bound), k = a.shape.depth;
  const size_t words = linear_thread_bytes(rows, k);
  return static_cast<size_t>(threads) * (kTiles ? std::max(words, unit_thread_bytes(rows, 2 * k)) : words);
}

template <bool kTiles>
void add_products(Entries& entries, const KernelTable& k) {
  entries.add("grouped_linear", k.grouped_linear,
              {.scratch = scratch(grouped_bytes<kTiles, GroupedLinearArgs>), .layouts = {"panel64"}});
  entries.add("grouped_linear_rows", k.grouped_linear_rows,
              {.scratch = scratch(grouped_bytes<kTiles, GroupedLinearRowsArgs>), .layouts = {"panel64"}});
}

}  // namespace

void register_experts(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("moe_gate", k.moe_gate, {.accepts = accepts_gate, .scratch = scratch(gate_bytes)});
  entries.add("moe_route", k.moe_route, {.scratch = scratch(route_bytes)});
  entries.add("moe_combine", k.moe_combine);
  entries.add("add_groups", k.add_groups);
  has_tiles(isa) ? add_products<true>(entries, k) : add_products<false>(entries, k);
}

}  // namespace reprise::cpu
