#include "ops/args/rotation.h"

#include "ops/args/rows.h"
#include "ops/kernel.h"

namespace reprise {
namespace {

Status accepts_rope_table(const OpCall& c) {
  const int64_t dim = c.attrs->integer("dim");
  if (c.attrs->integer("ntk_window") > 0 && (dim <= 2 || !(c.attrs->number("ntk_base") > 0)))
    return error(Code::Unsupported, "dynamic NTK needs dim > 2 and ntk_base > 0, not dim {} and ntk_base {}", dim,
                 c.attrs->number("ntk_base"));
  return Status::ok();
}

// The rotated size, of the table that is operand i, and rows of the operand before it.
Status want_rotated(const OpCall& c, size_t i) {
  RETURN_IF_ERROR(want_constant_rows(c, i - 1));
  const Dim rot = c.in[i].shape[1];
  if (rot.is_constant() && rot.factor % 2 == 0) return Status::ok();
  return error(Code::Unsupported, "the rotated size of {} is not an even constant", describe(c));
}
template <size_t kTable>
Status accepts_rotated(const OpCall& c) {
  return want_rotated(c, kTable);
}

// qkv is operand i, the table the next one.
void fill_sizes(const OpCall& c, size_t i, SplitSizes& a) {
  const Shape& qkv = c.in[i].shape;
  a.tokens = qkv[0];
  a.heads = c.attrs->integer("heads");
  a.kv_heads = c.attrs->integer("kv_heads");
  a.size = qkv[1].factor / (a.heads + 2 * a.kv_heads);
  a.rotated = c.in[i + 1].shape[1].factor;
  a.eps = c.attrs->number("eps");
  a.type = c.in[i].dtype;
  a.table_type = c.in[i + 1].dtype;
}

Status accepts_latent_rows(const OpCall& c) { return want_constant_rows(c, 2); }
Status accepts_kv_write(const OpCall& c) { return want_constant_rows(c, 1); }

}  // namespace

void RopeTableArgs::fill(const OpCall& c) {
  inv_freq = c.attrs->numbers("inv_freq").data();
  tokens = c.in[0].shape[0];
  dim = c.attrs->integer("dim");
  ntk_window = c.attrs->integer("ntk_window");
  scale = c.attrs->number("scale");
  ntk_base = c.attrs->number("ntk_base");
  ntk_factor = c.attrs->number("ntk_factor");
}
void PositionScaleArgs::fill(const OpCall& c) {
  factors = c.attrs->numbers("factors").data();
  count = static_cast<int64_t>(c.attrs->numbers("factors").size());
  period = c.attrs->integer("period");
  offset = c.attrs->integer("offset");
  tokens = c.in[0].shape[0];
}
void RopeTableAxesArgs::fill(const OpCall& c) {
  inv_freq = c.attrs->numbers("inv_freq").data();
  axes = c.attrs->numbers("axes").data();
  tokens = c.in[0].shape[0];
  frequencies = static_cast<int64_t>(c.attrs->numbers("inv_freq").size());
  columns = c.in[0].shape[1].factor;
  scale = c.attrs->number("scale");
}
void RopeArgs::fill(const OpCall& c) {
  const Shape& s = c.in[0].shape;
  tokens = s[0];
  heads = s[1].factor;
  size = s[2].factor;
  rotated = c.in[1].shape[1].factor;
  interleaved = c.attrs->integer("interleaved") != 0;
  type = c.in[0].dtype;
  table_type = c.in[1].dtype;
  planes = !same_dim(c.in[1].shape[0], tokens);
}
void RopeAnglesArgs::fill(const OpCall& c) {
  tokens = c.in[0].shape[0];
  rotated = c.in[0].shape[1].factor;
  planes = c.attrs->integer("planes") != 0;
  type = c.out.empty() ? c.in[0].dtype : c.out[0].dtype;
}
void IndexI64Args::fill(const OpCall& c) { count = c.in[0].shape[0]; }
void LatentRowsArgs::fill(const OpCall& c) {
  tokens = c.in[2].shape[0];
  pages = c.in[0].shape[0];
  width = c.in[0].shape[2].factor;
  rotated = c.in[1].shape[2].factor;
  eps = c.attrs->number("eps");
  type = c.in[0].dtype;
  table_type = c.in[4].dtype;
  slot_type = c.in[5].dtype;
  planes = !same_dim(c.in[4].shape[0], tokens);
}
void SplitArgs::fill(const OpCall& c) { fill_sizes(c, 0, sizes); }
void SplitKvArgs::fill(const OpCall& c) { fill_sizes(c, 1, sizes); }
void SplitRowsArgs::fill(const OpCall& c) {
  fill_sizes(c, 2, sizes);
  pages = c.in[0].shape[0];
}
void KvWriteArgs::fill(const OpCall& c) {
  const Shape& k = c.in[1].shape;
  tokens = k[0];
  heads = k[1].factor;
  size = k[2].factor;
}
void RowWriteArgs::fill(const OpCall& c) {
  tokens = c.in[1].shape[0];
  pages = c.in[0].shape[0];
  width = c.in[1].shape[1].factor;
  element = static_cast<int64_t>(size_of(c.in[1].dtype));
  type = c.in[0].dtype;
}

std::span<const OpArgs> rotation_args() {
  static const OpArgs rows[] = {
      op_row("position_scale", &PositionScaleArgs::out, &PositionScaleArgs::out),
      op_row("rope_table", &RopeTableArgs::table, &RopeTableArgs::table, accepts_rope_table),
      op_row("rope_table_axes", &RopeTableAxesArgs::table, &RopeTableAxesArgs::table, constant_rows),
      op_row("rope", &RopeArgs::out, &RopeArgs::x, accepts_rotated<1>),
      op_row("split_qk_norm_rope", &SplitArgs::v, &SplitArgs::qkv, accepts_rotated<1>),
      op_row("split_qk_norm_rope_kv", &SplitKvArgs::q, &SplitKvArgs::qkv, &SplitKvArgs::kv, accepts_rotated<2>),
      op_row("split_qk_norm_rope_rows", &SplitRowsArgs::q, &SplitRowsArgs::qkv, accepts_rotated<3>),
      op_row("rope_angles", &RopeAnglesArgs::angles, &RopeAnglesArgs::table, constant_rows),
      op_row("index_i64", &IndexI64Args::out, &IndexI64Args::x),
      op_row("latent_rows", &LatentRowsArgs::same_k_pe, &LatentRowsArgs::kv, accepts_latent_rows),
      op_row("kv_write", &KvWriteArgs::same, &KvWriteArgs::k, &KvWriteArgs::kv, accepts_kv_write),
      op_row("row_write", &RowWriteArgs::same, &RowWriteArgs::rows, accepts_kv_write),
  };
  return rows;
}

}  // namespace reprise
