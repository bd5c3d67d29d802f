// Entries of products with a weight in panel64, of what is fused with them, and of the table of embeddings.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/product_bytes.h"
#include "backends/cpu/register.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

template <bool kTiles>
size_t head_bytes(const LmHeadArgs& a, const LiveSizes& bound, int threads) {
  return product_bytes<kTiles>(a, bound, threads) + best_bytes(a.shape.rows.value(bound), threads);
}

Status accepts_embedding(const OpCall& call) {
  const DType t = call.in[0].dtype;
  if (t == DType::F32 || t == DType::F16 || t == DType::BF16) return Status::ok();
  return error(Code::Unsupported, "takes f32, f16 or bf16 tables; the call has {}", dtype_name(t));
}

int64_t group_of_layout(const OpCall& call) {
  return call.param_layout == "panel64" ? panel_group(call.in[0].dtype) : 0;
}

template <bool kTiles>
void add_products(Entries& entries, const KernelTable& k) {
  using enum DType;
  const Extras linear{
      .scratch = scratch(product_bytes<kTiles, LinearArgs>), .f32_scratch = false, .layouts = {"panel64"}};
  entries.add("linear", k.linear, linear);
  entries.add("linear", EntryTypes(BF16, F32), k.linear_bf16_f32, linear);
  entries.add("linear", EntryTypes(F16, F32), k.linear_f16_f32, linear);
  entries.add("linear_add", k.linear_add,
              {.scratch = scratch(product_bytes<kTiles, LinearAddArgs>), .layouts = {"panel64"}});
  entries.add("lm_head_argmax", k.lm_head_argmax,
              {.second = k.lm_head_argmax_merge, .scratch = scratch(head_bytes<kTiles>), .layouts = {"panel64"}});
}

}  // namespace

void register_linear(KernelRegistry& kernels, Isa isa) {
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  register_layouts(kernels);
  has_tiles(isa) ? add_products<true>(entries, k) : add_products<false>(entries, k);
  entries.add("embedding", k.embedding,
              {.accepts = accepts_embedding, .layouts = {"panel64", "row_major"}, .way = group_of_layout});
}

}  // namespace reprise::cpu
