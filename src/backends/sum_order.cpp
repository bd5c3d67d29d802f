#include "backends/sum_order.h"

#include <fmt/format.h>

#include <initializer_list>
#include <span>

#include "backends/cpu/isa.h"
#include "ops/block_activations.h"

namespace reprise {
namespace {

struct Order {
  std::initializer_list<std::string_view> ops;
  std::string_view text, text_of_16_bits = {};  // of bf16 and f16 where it differs
  bool f16_as_f32 = false;                      // the second text is bf16's alone
};

constexpr std::string_view kChain =
    "one chain of multiply-adds in fp32 for each number, over K in ascending order, from 0";
constexpr std::string_view kRowSum =
    "number i of a row goes to partial sum i % 16, in ascending order; the 16 are added as a tree: i and i + 8, then i "
    "and i + 4, 2, 1";

// The same on the CPU and on CUDA, to the bit.
const Order kBoth[] = {
    {{"linear_w8a8_static", "linear_w8a8_dynamic", "lm_head_argmax_w8a8", "grouped_linear_w8a8_static",
      "grouped_linear_w8a8_dynamic"},
     "sums of int8 products are exact in int32, so their order is free"},
    {{"segment_attention"},
     "scores: one chain over the head; weights: 16 partial sums by the key's number, then a tree; outputs: one chain "
     "over all keys, ascending"},
    {{"pool_rows"}, "rows one after the other, ascending"},
    {{"lora_shrink"}, kRowSum},
    {{"lora_expand"}, "one chain over the rank, ascending, from 0; then added to what was there"},
    {{"l2_normalize"}, kRowSum},
    {{"causal_conv"}, "one chain over the rows, the oldest first, from 0"},
    {{"causal_conv_biased"}, "one chain over the rows, the oldest first, from the bias"},
    {{"state_space"},
     "sums over the state: two chains by the number's parity, ascending, then the two, then x; rows one after the "
     "other in every step"},
    {{"rms_norm_gated"}, kRowSum},
    {{"gated_delta"},
     "lengths of keys and queries: 16 partial sums and a tree; sums over the key: two chains by the "
     "number's parity, ascending, then the two; rows one after the other in every step"},
    {{"moe_combine"}, "one chain over a token's experts, in the order of their scores"},
    {{"sample", "sample_undecided", "draw_sums", "draw_best", "merge_draws"},
     "weights by blocks of ids: within a block 16 partial sums and a tree, blocks in ascending order in double "
     "precision"},
};

// The order depends on no instruction set, thread, batch or graph: where a vector has fewer than 16 lanes, several
// stand for one. A multiply-add is rounded once, but twice on the set without such an instruction (baseline on x86-64).
const Order kCpu[] = {
    {{"linear", "linear_add", "lm_head_argmax", "grouped_linear", "grouped_linear_rows", "per_head_matmul",
      "per_head_matmul_rows"},
     kChain,
     "one chain of multiply-adds in fp32 for each number, over K in ascending order, from 0; bf16 goes in pairs of K, "
     "the odd one first"},
    {{"linear_blocks", "lm_head_argmax_blocks", "grouped_linear_blocks"},
     kChain,
     "one chain over the blocks of 32 K (16 of q2_k, q3_k and q6_k), ascending, from 0: the factor times a sum of the "
     "block's "
     "numbers, "
     "then the minimum times the sum of the block's inputs (16 partial sums, then a tree); in a block one chain from 0 "
     "over the "
     "pairs K, K + 4 of each eight, the second one first",
     true},
    {{"rms_norm", "rms_norm_centred", "unit_rms_norm", "add_rms_norm", "add_rms_norm_quant_static",
      "add_rms_norm_quant_dynamic", "split_qk_norm_rope", "split_qk_norm_rope_kv", "layer_norm"},
     kRowSum},
    {{"paged_attention", "latent_attention", "expanded_latent_attention"},
     "scores: one chain over the head; within a page of 128 keys the weights go to 16 partial sums by the key's "
     "number, then a tree, and each output is one chain over the keys, ascending; pages are merged from the first to "
     "the last, rescaled to the larger maximum; a sink comes last"},
    {{"moe_gate"}, "the softmax over experts: 16 partial sums by the expert's number, then a tree"},
    {{"sum_parts"}, "the parts of the ranks, from rank 0 on"},
};

// On tile registers, bf16 alone: the rest of `amx` is as avx512 has it.
constexpr std::string_view kTileOps[] = {
    "linear",          "linear_add",          "lm_head_argmax", "grouped_linear", "grouped_linear_rows",
    "per_head_matmul", "per_head_matmul_rows"};
constexpr std::string_view kTileOrder =
    "one chain over blocks of 32 K, ascending, from 0: of a block two chains of 16 multiply-adds from 0, over its even "
    "and its odd K, ascending; one is added to the other, and that to the sum";
constexpr std::string_view kTileAttention =
    "scores: over blocks of 32 numbers of the head, each output over blocks of 32 keys of a page of 128, both as "
    "linear has them; the weights of a page go to 16 partial sums by the key's number, then a tree; pages are merged "
    "from the first to the last, rescaled to the larger maximum; a sink comes last. An int8 cache: one chain each";
constexpr std::string_view kTileBlockOps[] = {"linear_blocks", "lm_head_argmax_blocks", "grouped_linear_blocks"};
constexpr std::string_view kTileBlockOrder =
    "as linear with the weights rounded to bf16: one chain over blocks of 32 K, ascending, from 0: of a block two "
    "chains of 16 multiply-adds from 0, over its even and its odd K, ascending; one is added to the other, and that to "
    "the sum";

// The same on every instruction set and for every dtype.
constexpr std::string_view kByteOrder =
    "one chain over the blocks of 32 K (16 of q2_k, q3_k and q6_k), ascending, from 0: the block's sum of integer "
    "products, exact, times the weight's factor, rounded, times the factor of x; then the minimum times the sum of the "
    "block's x; behind every 256 K the outliers among them, times the weight, rounded";

const Order kCuda[] = {
    {{"linear_blocks", "lm_head_argmax_blocks"}, kChain},
    {{"linear", "linear_add", "linear_silu_mul", "lm_head_argmax", "grouped_linear", "grouped_linear_rows",
      "per_head_matmul", "per_head_matmul_rows"},
     kChain,
     "one chain of tensor-core blocks of 16 over K in ascending order, in one fp32 accumulator, from 0"},
    {{"grouped_linear_blocks"},
     kChain,
     "bf16: as grouped_linear on unpacked weights; f16: one chain of multiply-adds in fp32, over K in ascending order"},
    {{"rms_norm", "rms_norm_centred", "unit_rms_norm", "add_rms_norm", "add_rms_norm_quant_static",
      "add_rms_norm_quant_dynamic", "split_qk_norm_rope", "split_qk_norm_rope_kv", "layer_norm"},
     "a thread adds chunks of 8 numbers in ascending order; then the lanes of a warp by xor 16, 8, 4, 2, 1; then the "
     "warps in ascending order"},
    {{"paged_attention", "latent_attention"},
     "scores: one chain over the head; keys in tiles of 32, ascending, a key a lane",
     "scores: one chain of tensor-core blocks of 16 over the head; weights by lane, then xor 1, 2; outputs: one chain "
     "over the 128 keys of a group; groups in ascending order"},
    {{"all_reduce"}, "the parts of the ranks, from rank 0 on, in fp32"},
};

std::string_view find(std::span<const Order> own, std::string_view op, DType dtype) {
  for (const std::span<const Order> orders : {own, std::span<const Order>(kBoth)})
    for (const Order& o : orders)
      for (const std::string_view name : o.ops)
        if (name == op) {
          const bool first = dtype == DType::F32 || o.text_of_16_bits.empty() || (dtype == DType::F16 && o.f16_as_f32);
          return first ? o.text : o.text_of_16_bits;
        }
  return {};
}

}  // namespace

std::string_view sum_order(const DeviceInfo& device, std::string_view op, DType dtype, const Attrs& attrs) {
  switch (device.kind) {
    case DeviceKind::Cpu:
      if (has_int8_activations(attrs)) return kByteOrder;
      if (const auto isa = cpu::isa_named(device.isa); isa && cpu::has_tiles(*isa) && dtype == DType::BF16) {
        if (op == "paged_attention" || op == "latent_attention" || op == "expanded_latent_attention")
          return kTileAttention;
        for (const std::string_view name : kTileOps)
          if (name == op) return kTileOrder;
        if (cpu::has_block_tiles(*isa))
          for (const std::string_view name : kTileBlockOps)
            if (name == op) return kTileBlockOrder;
      }
      return find(kCpu, op, dtype);
    case DeviceKind::Cuda: return find(kCuda, op, dtype);
    case DeviceKind::Ascend:
      // What adds up on the CPU adds up there, by the vendor's operators.
      return find(kCpu, op, dtype).empty() ? "" : "as CANN's operator adds up, which its documents do not say";
    default: return {};
  }
}

std::string sum_order_name(DeviceKind kind, std::string_view isa) {
  constexpr std::string_view kArchitecture = "sm_";
  if (kind == DeviceKind::Cuda && isa.starts_with(kArchitecture))
    // Blocks of 16 on the tensor cores, whose own way of adding differs by architecture; groups of 128 keys.
    return fmt::format("sm{}/tc16/page128", isa.substr(kArchitecture.size()));
  const auto set = kind == DeviceKind::Cpu ? cpu::isa_named(isa) : std::nullopt;
  if (!set) return {};
  if (cpu::has_tiles(*set)) return cpu::has_block_tiles(*set) ? "amx32x2/blocks" : "amx32x2";
  // Without an instruction for it a multiply-add is rounded twice.
  return cpu::has_fused_multiply_add(*set) ? "pairs" : "pairs/two-roundings";
}

}  // namespace reprise
