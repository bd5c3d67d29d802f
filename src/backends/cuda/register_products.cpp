// Entries of matrix products, of what is fused with them, of a mixture of experts, and of argmax.
#include "backends/cuda/kernels/product_sizes.h"
#include "backends/cuda/register.h"
#include "ops/args/elements.h"
#include "ops/args/products.h"
#include "ops/block_activations.h"

namespace reprise::cuda {
namespace {

// Two kernels: of f32 the logits and their largest of parts; else the largest of the product's blocks.
size_t candidates(const ProductShape& shape, const LiveSizes& bound) {
  return static_cast<size_t>(shape.rows.value(bound)) * head_candidates_bytes(shape.columns);
}
size_t head_bytes(const LmHeadArgs& a, const LiveSizes& bound, int) { return candidates(a.shape, bound); }
size_t head_f32_bytes(const LmHeadArgs& a, const LiveSizes& bound, int) {
  const auto rows = static_cast<size_t>(a.shape.rows.value(bound));
  const int64_t columns = a.shape.columns;
  return (rows * static_cast<size_t>(columns) + 1) * sizeof(float) + rows * row_candidates_bytes(columns);
}
size_t head_packed_bytes(const LmHeadBlocksArgs& a, const LiveSizes& bound, int) { return candidates(a.shape, bound); }
size_t head_w8a8_bytes(const LmHeadW8a8Args& a, const LiveSizes& bound, int) { return candidates(a.shape, bound); }

size_t argmax_bytes(const UnaryArgs& a, const LiveSizes& bound, int) {
  return static_cast<size_t>(a.rows.value(bound)) * row_candidates_bytes(a.width);
}
size_t gated_product_bytes(const LinearSiluMulArgs& a, const LiveSizes& bound, int) {
  return gated_bytes(a.shape.rows.value(bound), a.shape.columns);
}
size_t static_bytes(const LinearW8a8StaticArgs& a, const LiveSizes& bound, int) {
  return sums_bytes(a.shape.rows.value(bound), a.shape.columns);
}
size_t dynamic_bytes(const LinearW8a8DynamicArgs& a, const LiveSizes& bound, int) {
  return sums_bytes(a.shape.rows.value(bound), a.shape.columns);
}

// The weight is operand `w`; a bias, where there is one, operand `bias`. A library would round before it is added, or
// add in an order of its own.
LibraryProduct float_product(const OpCall& c, size_t w, size_t bias) {
  const Shape& weight = c.in[w].shape;
  return {c.in[0].dtype, c.out[0].dtype, weight[1].factor, weight[0].factor,
          c.in[0].dtype == DType::F32 ? "it is of fp32"
          : c.in.size() > bias        ? "it has a bias"
                                      : ""};
}
LibraryProduct product_of_linear(const OpCall& c) { return float_product(c, 1, 2); }
LibraryProduct product_of_linear_add(const OpCall& c) { return float_product(c, 1, 3); }

LibraryProduct product_of_linear_silu_mul(const OpCall& c) { return float_product(c, 1, 2); }

// Of int8 the sums alone.
template <size_t kWeight>
LibraryProduct product_of_w8a8(const OpCall& c) {
  const Shape& weight = c.in[kWeight].shape;
  return {DType::I8, DType::I32, weight[1].factor, weight[0].factor};
}

Status accepts_same_activations(const OpCall& c) {
  if (has_int8_activations(*c.attrs))
    return error(Code::Unsupported, "takes activations as they are, not rounded to int8");
  return Status::ok();
}

// Other blocks are unpacked while they are loaded, as those of plain products are.
Status accepts_powers(const OpCall& c) {
  RETURN_IF_ERROR(accepts_same_activations(c));
  if (const std::string& format = c.attrs->text("format"); format != "mxfp4")
    return error(Code::Unsupported, "takes blocks of mxfp4, not {}", format);
  return Status::ok();
}

// Blocks of other formats have no kernels here.
Status accepts_short_blocks(const OpCall& c) {
  RETURN_IF_ERROR(accepts_same_activations(c));
  const std::string& format = c.attrs->text("format");
  for (const std::string_view known : {"q8_0", "q4_0", "q4_1", "mxfp4"})
    if (format == known) return Status::ok();
  return error(Code::Unsupported, "takes blocks of q8_0, q4_0, q4_1 and mxfp4, not {}", format);
}

}  // namespace

void register_products(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
  Entries entries(kernels);
  entries.add("linear", table.linear, {.library = product_of_linear});
  entries.add("linear", EntryTypes(BF16, F32), table.linear_wide.bf16, {.library = product_of_linear});
  entries.add("linear", EntryTypes(F16, F32), table.linear_wide.f16, {.library = product_of_linear});
  entries.add("linear_add", table.linear_add, {.library = product_of_linear_add});
  entries.add("linear_silu_mul", table.linear_silu_mul,
              {.scratch = scratch(gated_product_bytes), .library = product_of_linear_silu_mul});
  const PerType& head = table.lm_head_argmax;
  entries.add("lm_head_argmax", F32, head.f32, {.scratch = scratch(head_f32_bytes)});
  entries.add("lm_head_argmax", BF16, head.bf16, {.scratch = scratch(head_bytes)});
  entries.add("lm_head_argmax", F16, head.f16, {.scratch = scratch(head_bytes)});
  entries.add("argmax", table.argmax, {.scratch = scratch(argmax_bytes)});
  entries.add("linear_w8a8_static", table.linear_w8a8_static,
              {.scratch = scratch(static_bytes), .library = product_of_w8a8<1>});
  entries.add("linear_w8a8_dynamic", table.linear_w8a8_dynamic,
              {.scratch = scratch(dynamic_bytes), .library = product_of_w8a8<2>});
  entries.add("lm_head_argmax_w8a8", table.lm_head_argmax_w8a8, {.scratch = scratch(head_w8a8_bytes)});
  entries.add("moe_gate", table.moe_gate);
  entries.add("moe_route", table.moe_route);
  entries.add("moe_combine", table.moe_combine);
  entries.add("grouped_linear", table.grouped_linear);
  entries.add("grouped_linear_rows", table.grouped_linear_rows);
  entries.add("add_groups", table.add_groups);
  entries.add("grouped_linear_blocks", table.grouped_linear_blocks, {.accepts = accepts_powers});
  entries.add("grouped_linear_w8a8_static", table.grouped_w8a8_static);
  entries.add("grouped_linear_w8a8_dynamic", table.grouped_w8a8_dynamic);
}

void register_packed(KernelRegistry& kernels, const KernelTable& table) {
  using enum DType;
  Entries entries(kernels);
  entries.add("linear_blocks", table.linear_blocks, {.accepts = accepts_short_blocks});
  entries.add("linear_blocks", EntryTypes(BF16, F32), table.linear_blocks_wide.bf16, {.accepts = accepts_short_blocks});
  entries.add("linear_blocks", EntryTypes(F16, F32), table.linear_blocks_wide.f16, {.accepts = accepts_short_blocks});
  entries.add("lm_head_argmax_blocks", table.lm_head_argmax_blocks,
              {.accepts = accepts_short_blocks, .scratch = scratch(head_packed_bytes)});
  entries.add("embedding_blocks", table.embedding_blocks, {.accepts = accepts_short_blocks});
}

}  // namespace reprise::cuda
