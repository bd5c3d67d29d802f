// Entries of a mixture of experts: the choice, the way to the experts and back, products in groups of rows.
#include "backends/cpu/kernels/moe_shape.h"
#include "backends/cpu/product_bytes.h"
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
template <bool kTiles>
void add_grouped_products(Entries& entries, const KernelTable& k) {
  entries.add("grouped_linear", k.grouped_linear,
              {.scratch = scratch(product_bytes<kTiles, GroupedLinearArgs>), .layouts = {"panel64"}});
  entries.add("grouped_linear_rows", k.grouped_linear_rows,
              {.scratch = scratch(product_bytes<kTiles, GroupedLinearRowsArgs>), .layouts = {"panel64"}});
}

}  // namespace

void register_experts(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  entries.add("moe_gate", k.moe_gate, {.accepts = accepts_gate, .scratch = scratch(gate_bytes)});
  entries.add("moe_route", k.moe_route, {.scratch = scratch(route_bytes)});
  entries.add("moe_combine", k.moe_combine);
  entries.add("add_groups", k.add_groups);
  has_tiles(isa) ? add_grouped_products<true>(entries, k) : add_grouped_products<false>(entries, k);
}

}  // namespace reprise::cpu
