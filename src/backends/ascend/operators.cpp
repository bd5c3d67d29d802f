#include "backends/ascend/operators.h"

namespace reprise::ascend {
namespace {

// Calls `f` with every operator.
template <typename Table, typename F>
void each(Table& t, F f) {
  f(t.embedding);
  f(t.index_select);
  f(t.rms_norm);
  f(t.add_rms_norm);
  f(t.matmul);
  f(t.matmul_nz);
  f(t.addmm);
  f(t.batch_matmul);
  f(t.transpose_batch_matmul);
  f(t.add);
  f(t.adds);
  f(t.mul);
  f(t.muls);
  f(t.silu);
  f(t.reciprocal);
  f(t.cos);
  f(t.sin);
  f(t.tanh);
  f(t.gelu);
  f(t.layer_norm);
  f(t.sum);
  f(t.running_sum);
  f(t.exp);
  f(t.clamp_min);
  f(t.softplus);
  f(t.swiglu);
  f(t.cast);
  f(t.copy);
  f(t.argmax);
  f(t.gather);
  f(t.rope_cache);
  f(t.scatter_kv);
  f(t.scatter_nd);
  f(t.interleave_rope);
  f(t.latent_rows);
  f(t.fused_attention);
  f(t.sunk_attention);
  f(t.decode_attention);
  f(t.prompt_attention);
  f(t.segment_attention);
  f(t.delta_rule);
  f(t.quantize);
  f(t.dynamic_quantize);
  f(t.quant_matmul);
  f(t.quant_matmul_nz);
  f(t.add_rms_norm_quant);
  f(t.add_rms_norm_dynamic_quant);
  f(t.dequant_swiglu_quant);
  f(t.sigmoid);
  f(t.zero);
  f(t.gating);
  f(t.gating_softmax);
  f(t.init_routing);
  f(t.grouped_matmul);
  f(t.grouped_swiglu_quant);
  f(t.grouped_swiglu_quant_nz);
  f(t.finalize_routing);
  f(t.dispatch);
  f(t.combine_dispatched);
}

}  // namespace

void Operators::find(const Library& library) {
  each(*this, [&](auto& op) { op.find(library); });
}

std::vector<std::string> Operators::missing() const {
  std::vector<std::string> out;
  each(*this, [&](auto& op) {
    if (!op) out.emplace_back(op.name);
  });
  if (fused_attention && !fused_attention.most)
    out.push_back(std::string(fused_attention.name) + "GetMaxWorkspaceSize");
  if (sunk_attention && !sunk_attention.most) out.push_back(std::string(sunk_attention.name) + "GetMaxWorkspaceSize");
  return out;
}

}  // namespace reprise::ascend
