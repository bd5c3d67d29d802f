// Entries of norms, rotation and cache writes.
#include "backends/cuda/kernels/rotation_limits.h"
#include "backends/cuda/register.h"
#include "ops/core.h"

namespace reprise::cuda {
namespace {

void bind_rms_norm(const OpCall& c, LaunchArgs& args) {
  const Shape& s = c.in[0].shape;
  args.dim[0] = s[0];
  args.dim[1] = product_of(s, 1, s.rank() - 1);
  args.dim[2] = s.back();
  args.scalar[0] = c.attrs->number("eps");
}

template <DType T>
Status accepts_add_norm(const OpCall& c) {
  if (c.in[0].shape.rank() != 2) return error(Code::Unsupported, "takes rows of rank 2, not {}", describe(c));
  return accepts_rows_of<T>(c);
}

void bind_add_norm(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.in[0].shape[1];
  args.scalar[0] = c.attrs->number("eps");
}

Status want_rotated(const OpCall& c, size_t table) {
  RETURN_IF_ERROR(want_type(c, table, DType::F32));
  const Dim rot = c.in[table].shape[1];
  if (rot.is_constant() && rot.factor % 2 == 0) return Status::ok();
  return error(Code::Unsupported, "the rotated size of {} is not an even constant", describe(c));
}

template <DType T>
Status accepts_rope(const OpCall& c) {
  RETURN_IF_ERROR(accepts_rows_of<T>(c));
  return want_rotated(c, 1);
}

void bind_rope(const OpCall& c, LaunchArgs& args) {
  for (size_t i = 0; i < 3; ++i) args.dim[i] = c.in[0].shape[static_cast<int>(i)];
  args.dim[3] = c.in[1].shape[1];
  args.dim[4] = c.attrs->integer("interleaved");
}

Status accepts_rope_table(const OpCall& c) {
  const int64_t dim = c.attrs->integer("dim");
  if (dim / 2 > kMaxRotatedHalf)
    return error(Code::Unsupported, "takes dim up to {}, not {}", 2 * kMaxRotatedHalf, dim);
  if (c.attrs->integer("ntk_window") > 0 && (dim <= 2 || !(c.attrs->number("ntk_base") > 0)))
    return error(Code::Unsupported, "dynamic NTK needs dim > 2 and ntk_base > 0, not dim {} and ntk_base {}", dim,
                 c.attrs->number("ntk_base"));
  return Status::ok();
}

void bind_rope_table(const OpCall& c, LaunchArgs& args) {
  // The attribute lives as long as the graph, and so as long as anything bound from it. The host reads it at a launch.
  args.ptr[2] = const_cast<double*>(c.attrs->numbers("inv_freq").data());
  args.dim[0] = c.in[0].shape[0];
  args.dim[1] = c.attrs->integer("dim");
  args.dim[2] = c.attrs->integer("ntk_window");
  args.scalar[0] = c.attrs->number("scale");
  args.scalar[1] = c.attrs->number("ntk_base");
  args.scalar[2] = c.attrs->number("ntk_factor");
}

Status want_head(const OpCall& c, Dim size) {
  if (size.is_constant() && size.factor % 2 == 0 && size.factor >= 2 && size.factor <= kLargestHead)
    return Status::ok();
  return error(Code::Unsupported, "takes even head sizes from 2 to {}, not {} of {}", kLargestHead, size.factor,
               describe(c));
}

// The cache's variant has the operand kv before and slots after these two.
template <DType T>
Status accepts_split(const OpCall& c) {
  RETURN_IF_ERROR(accepts_rows_of<T>(c));
  RETURN_IF_ERROR(want_rotated(c, 1));
  return want_head(c, c.in[0].shape[1].factor / (c.attrs->integer("heads") + 2 * c.attrs->integer("kv_heads")));
}

template <DType T, DType Cache>
Status accepts_split_kv(const OpCall& c) {
  RETURN_IF_ERROR(want_type(c, 0, Cache));
  RETURN_IF_ERROR(want_type(c, 1, T));
  RETURN_IF_ERROR(want_rotated(c, 2));
  return want_head(c, kv_head_size(c.in[0]));
}

void bind_split_of(const OpCall& c, LaunchArgs& args, size_t qkv) {
  const Shape& s = c.in[qkv].shape;
  const int64_t h = c.attrs->integer("heads"), g = c.attrs->integer("kv_heads");
  args.dim[0] = s[0];
  args.dim[1] = h;
  args.dim[2] = g;
  args.dim[3] = s[1].factor / (h + 2 * g);
  args.dim[4] = c.in[qkv + 1].shape[1];
  args.scalar[0] = c.attrs->number("eps");
}
void bind_split(const OpCall& c, LaunchArgs& args) { bind_split_of(c, args, 0); }
void bind_split_kv(const OpCall& c, LaunchArgs& args) { bind_split_of(c, args, 1); }

template <DType T, DType Cache>
Status accepts_kv_write(const OpCall& c) {
  RETURN_IF_ERROR(want_type(c, 0, Cache));
  RETURN_IF_ERROR(want_type(c, 1, T));
  RETURN_IF_ERROR(want_constant_rows(c, 1));
  return want_head(c, kv_head_size(c.in[0]));
}

void bind_kv_write(const OpCall& c, LaunchArgs& args) {
  for (size_t i = 0; i < 3; ++i) args.dim[i] = c.in[1].shape[static_cast<int>(i)];
}

Status accepts_row_write(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c, 1));
  if (size_of(c.in[1].dtype) % 2 == 0) return Status::ok();
  return error(Code::Unsupported, "takes numbers of two or four bytes, not {}", describe(c));
}

void bind_row_write(const OpCall& c, LaunchArgs& args) {
  args.dim[0] = c.in[1].shape[0];
  args.dim[1] = c.in[1].shape[1].factor * static_cast<int64_t>(size_of(c.in[1].dtype));
}

}  // namespace

#define REPRISE_ADD(op, accepts, bind)                                        \
  add_entry(kernels, #op, "f32", accepts<DType::F32>, bind, table.op.f32);    \
  add_entry(kernels, #op, "bf16", accepts<DType::BF16>, bind, table.op.bf16); \
  add_entry(kernels, #op, "f16", accepts<DType::F16>, bind, table.op.f16)
#define REPRISE_ADD_CACHED(op, accepts, bind)                                                    \
  add_entry(kernels, #op, "f32", accepts<DType::F32, DType::F32>, bind, table.op.f32);           \
  add_entry(kernels, #op, "bf16", accepts<DType::BF16, DType::BF16>, bind, table.op.bf16);       \
  add_entry(kernels, #op, "f16", accepts<DType::F16, DType::F16>, bind, table.op.f16);           \
  add_entry(kernels, #op, "f32_i8", accepts<DType::F32, DType::I8>, bind, table.op##_i8.f32);    \
  add_entry(kernels, #op, "bf16_i8", accepts<DType::BF16, DType::I8>, bind, table.op##_i8.bf16); \
  add_entry(kernels, #op, "f16_i8", accepts<DType::F16, DType::I8>, bind, table.op##_i8.f16)

void register_norms(KernelRegistry& kernels, const KernelTable& table) {
  REPRISE_ADD(rms_norm, accepts_rows_of, bind_rms_norm);
  REPRISE_ADD(add_rms_norm, accepts_add_norm, bind_add_norm);
  REPRISE_ADD(rope, accepts_rope, bind_rope);
  REPRISE_ADD(split_qk_norm_rope, accepts_split, bind_split);
  REPRISE_ADD_CACHED(split_qk_norm_rope_kv, accepts_split_kv, bind_split_kv);
  REPRISE_ADD_CACHED(kv_write, accepts_kv_write, bind_kv_write);
  add_entry(kernels, "rope_table", "", accepts_rope_table, bind_rope_table, table.rope_table);
  add_entry(kernels, "row_write", "", accepts_row_write, bind_row_write, table.row_write);
}

}  // namespace reprise::cuda
