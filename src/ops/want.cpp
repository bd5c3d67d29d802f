#include "ops/want.h"

#include "base/block_format.h"
#include "ops/block_activations.h"
#include "ops/kernel.h"

namespace reprise {

Status want_rank(const OpCall& c, size_t i, int lo, int hi) {
  const int r = c.in[i].shape.rank();
  if (r < lo || r > hi)
    return invalid("{}: operand {} has rank {}, expected {}", describe(c), c.op->operands[i].name, r,
                   lo == hi ? fmt::format("{}", lo) : fmt::format("{} to {}", lo, hi));
  return Status::ok();
}

Status want_dtype(const OpCall& c, size_t i, DType t) {
  if (c.in[i].dtype != t)
    return invalid("{}: operand {} must be {}", describe(c), c.op->operands[i].name, dtype_name(t));
  return Status::ok();
}

Status want_index(const OpCall& c, size_t i) {
  if (c.in[i].dtype != DType::I32 && c.in[i].dtype != DType::I64)
    return invalid("{}: operand {} must be i32 or i64", describe(c), c.op->operands[i].name);
  return Status::ok();
}

Status want_float(const OpCall& c, size_t i) {
  if (!is_float(c.in[i].dtype))
    return invalid("{}: operand {} must be a float type", describe(c), c.op->operands[i].name);
  return Status::ok();
}

Status want_same_dtype(const OpCall& c, size_t i, size_t j) {
  if (c.in[i].dtype != c.in[j].dtype)
    return invalid("{}: operands {} and {} must have the same dtype", describe(c), c.op->operands[i].name,
                   c.op->operands[j].name);
  return Status::ok();
}

Status want_dim(const OpCall& c, size_t i, int d, Dim expected, std::string_view what) {
  if (!same_dim(c.in[i].shape[d], expected))
    return invalid("{}: dimension {} of {} must be the {}", describe(c), d, c.op->operands[i].name, what);
  return Status::ok();
}

Status want_constant(const OpCall& c, size_t i, int d) {
  const Dim x = c.in[i].shape[d];
  if (!x.is_constant() || x.factor <= 0)
    return invalid("{}: dimension {} of {} must be a positive constant", describe(c), d, c.op->operands[i].name);
  return Status::ok();
}

Status want_range(const OpCall& c, std::string_view attr, int64_t lo, int64_t hi) {
  const int64_t v = c.attrs->integer(attr);
  if (v >= lo && v <= hi) return Status::ok();
  return invalid("{}: {} is {}; allowed: {} to {}", describe(c), attr, v, lo, hi);
}

Result<int64_t> want_blocks(const OpCall& c, size_t i) {
  const std::string& name = c.attrs->text("format");
  const auto format = find_block_format(name);
  if (!format) {
    std::string names;
    for (const BlockFormatInfo& f : kBlockFormats) names += fmt::format("{}{}", names.empty() ? "" : ", ", f.name);
    return invalid("{}: format \"{}\"; allowed: {}", describe(c), name, names);
  }
  RETURN_IF_ERROR(want_rank(c, i, 2, 3));
  RETURN_IF_ERROR(want_dtype(c, i, DType::U8));
  for (int d = 0; d < c.in[i].shape.rank(); ++d) RETURN_IF_ERROR(want_constant(c, i, d));
  const BlockFormatInfo& info = block_format_info(*format);
  const int64_t bytes = info.bytes, row = c.in[i].shape.back().factor;
  if (row % bytes != 0)
    return invalid("{}: a row of {} bytes is not a number of {} blocks of {} bytes", describe(c), row, name, bytes);
  return row / bytes * info.elements;
}

Status want_window_or_chunk(const OpCall& c) {
  const int64_t window = c.attrs->integer("window"), chunk = c.attrs->integer("chunk");
  if (chunk < 0 || (chunk > 0 && window > 0))
    return invalid("{}: chunk {} beside window {}; allowed: 0 (none), or from 1 on with window 0", describe(c), chunk,
                   window);
  return Status::ok();
}

Status want_shard(const OpCall& c) {
  const std::string& shard = c.attrs->text("shard");
  if (shard == "none" || shard == "column" || shard == "row") return Status::ok();
  return invalid("{}: shard \"{}\"; allowed: none, column, row", describe(c), shard);
}

Status want_activations(const OpCall& c) {
  const std::string& activations = c.attrs->text("activations");
  if (activations == activations_attr(false) || activations == activations_attr(true)) return Status::ok();
  return invalid("{}: activations \"{}\"; allowed: same, int8", describe(c), activations);
}

}  // namespace reprise
