#include "nn/latent.h"

namespace reprise::nn {

Tensor latent_attention(Tensor x, const LatentSpec& s, Tensor table, StepInputs& in, int64_t layer,
                        const ParamScope& p) {
  const Dim hidden = x.dim(-1);
  const auto rotate = [&](Tensor t) { return s.interleaved ? rope_interleaved(t, table) : rope(t, table); };

  const int64_t q_width = s.heads * (s.nope + s.rope);
  Tensor q;
  if (s.q_rank == 0) {
    q = linear(x, p / "q_proj", q_width, false, Shard::Column);
  } else {
    Tensor compressed = linear(x, p / "q_a_proj", s.q_rank, s.bias, Shard::None);
    q = linear(rms_norm(compressed, p / "q_a_layernorm", s.norm_eps), p / "q_b_proj", q_width, false, Shard::Column);
  }
  q = heads(q, s.nope + s.rope);
  Tensor kv = linear(x, p / "kv_a_proj_with_mqa", s.kv_rank + s.rope, s.bias, Shard::None);
  Tensor latent = rms_norm(slice(kv, 0, s.kv_rank), p / "kv_a_layernorm", s.norm_eps);
  Tensor k_rope = flatten(rotate(heads(slice(kv, s.kv_rank, s.rope), s.rope)));

  Tensor &c_kv = in.cache("c_kv", layer), &k_pe = in.cache("k_pe", layer);
  c_kv = row_write(c_kv, latent, in.slots);
  k_pe = row_write(k_pe, k_rope, in.slots);

  // kv_b_proj has for every head `nope` rows for keys, then `value` rows for values.
  const ParamScope up = p / "kv_b_proj";
  const int64_t rows = s.nope + s.value;
  Tensor to_latent = up.row_groups("weight", 0, s.nope, rows, true, {Dim(s.heads), Dim(s.kv_rank), Dim(s.nope)});
  Tensor to_value = up.row_groups("weight", s.nope, s.value, rows, false, {Dim(s.heads), Dim(s.value), Dim(s.kv_rank)});
  Tensor a = latent_attention(per_head_matmul(slice(q, 0, s.nope), to_latent), rotate(slice(q, s.nope, s.rope)), c_kv,
                              k_pe, in.page_table, in.context_lens, in.cu_seqlens, s.scale);
  return linear(flatten(per_head_matmul(a, to_value)), p / "o_proj", hidden.factor, s.bias, Shard::Row);
}

}  // namespace reprise::nn
