// Entries of products with a weight in panel64, of what is fused with them, and of the table of embeddings.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/linear_shape.h"
#include "backends/cpu/layout.h"
#include "backends/cpu/register.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

size_t product_bytes(const ProductShape& shape, const LiveSizes& bound, int threads) {
  return static_cast<size_t>(threads) * linear_thread_bytes(shape.rows.value(bound), shape.depth);
}
size_t linear_bytes(const LinearArgs& a, const LiveSizes& bound, int threads) {
  return product_bytes(a.shape, bound, threads);
}
size_t add_bytes(const LinearAddArgs& a, const LiveSizes& bound, int threads) {
  return product_bytes(a.shape, bound, threads);
}
size_t head_bytes(const LmHeadArgs& a, const LiveSizes& bound, int threads) {
  return product_bytes(a.shape, bound, threads) + best_bytes(a.shape.rows.value(bound), threads);
}

Status accepts_embedding(const OpCall& call) {
  const DType t = call.in[0].dtype;
  if (t == DType::F32 || t == DType::F16 || t == DType::BF16) return Status::ok();
  return error(Code::Unsupported, "takes f32, f16 or bf16 tables; the call has {}", dtype_name(t));
}

int64_t group_of_layout(const OpCall& call) {
  return call.param_layout == "panel64" ? panel_group(call.in[0].dtype) : 0;
}

}  // namespace

void register_linear(KernelRegistry& kernels, Isa isa) {
  using enum DType;
  const KernelTable& k = kernel_table(isa);
  Entries entries(kernels, isa);
  register_layouts(kernels);
  const Extras linear{.scratch = scratch(linear_bytes), .f32_scratch = false, .layouts = {"panel64"}};
  entries.add("linear", k.linear, linear);
  entries.add("linear", EntryTypes(BF16, F32), k.linear_bf16_f32, linear);
  entries.add("linear", EntryTypes(F16, F32), k.linear_f16_f32, linear);
  entries.add("linear_add", k.linear_add, {.scratch = scratch(add_bytes), .layouts = {"panel64"}});
  entries.add("lm_head_argmax", k.lm_head_argmax,
              {.any_second = k.lm_head_argmax_merge, .scratch = scratch(head_bytes), .layouts = {"panel64"}});
  entries.add("embedding", k.embedding,
              {.accepts = accepts_embedding, .layouts = {"panel64", "row_major"}, .way = group_of_layout});
}

}  // namespace reprise::cpu
