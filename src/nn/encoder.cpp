#include "nn/encoder.h"

namespace reprise::nn {
namespace {

Tensor call_one(std::string_view op, std::vector<Tensor> in, Attrs attrs = {}) {
  return in[0].tracer()->call(op, std::move(in), std::move(attrs))[0];
}

}  // namespace

Tensor segment_attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens, double scale, int64_t window) {
  return call_one("segment_attention", {q, k, v, cu_seqlens}, {{"scale", scale}, {"window", window}});
}
Tensor pool_rows(Tensor x, Tensor cu_seqlens, Tensor rows, std::string_view kind) {
  return call_one("pool_rows", {x, cu_seqlens, rows}, {{"kind", std::string(kind)}});
}
Tensor l2_normalize(Tensor x) { return call_one("l2_normalize", {x}); }
Tensor as_f32(Tensor x) { return x.dtype() == DType::F32 ? x : call_one("widen", {x}); }

Tensor rope_table_axes(Tensor positions, const RopeSpec& s, std::vector<double> axes) {
  return call_one("rope_table_axes", {positions},
                  {{"inv_freq", s.inv_freq}, {"axes", std::move(axes)}, {"scale", s.scale}});
}
Tensor join_rows(Tensor x, int64_t count) { return call_one("join_rows", {x}, {{"count", count}}); }
Tensor split_rows(Tensor x, int64_t count) { return call_one("split_rows", {x}, {{"count", count}}); }

}  // namespace reprise::nn
