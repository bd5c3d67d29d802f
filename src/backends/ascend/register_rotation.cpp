// Entries of rotary positions: the table of cosines and sines, and the rotation of heads by it.
#include <algorithm>

#include "backends/ascend/angles.h"
#include "ops/args/rotation.h"

namespace reprise::ascend {
namespace {

// Cosines of angles [T, h] times `scale` into the left half of table [T, 2 h], sines into the right one.
Status turn_table(const Out& table, double scale, aclTensor* angles, aclTensor* values, int64_t t, int64_t h,
                  Launch& l) {
  for (int64_t half : {0, 1}) {
    RETURN_IF_ERROR(l.run(half ? l.ops().sin : l.ops().cos, angles, values));
    if (scale != 1) RETURN_IF_ERROR(l.run(l.ops().muls, values, l.number(static_cast<float>(scale)), values));
    RETURN_IF_ERROR(l.run(l.ops().copy, l.view(table, DType::F32, {t, h}, {2 * h, 1}, half * h, t * 2 * h), values));
  }
  return Status::ok();
}

// positions [T] times frequencies [h], the constant, in fp32, as HF computes it; cosines into the left half of out
// [T, 2 h], sines into the right one.
Status rope_table(const RopeTableArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), h = a.dim / 2;
  const size_t bytes = static_cast<size_t>(t * h) * sizeof(float);
  aclTensor* positions = l.tensor(l.scratch(static_cast<size_t>(t) * sizeof(float)), DType::F32, {t, 1});
  aclTensor* angles = l.tensor(l.scratch(bytes), DType::F32, {t, h});
  aclTensor* values = l.tensor(l.scratch(bytes), DType::F32, {t, h});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.positions, DType::I32, {t, 1}), ACL_FLOAT, positions));
  RETURN_IF_ERROR(l.run(l.ops().mul, positions, l.tensor(l.constant(), DType::F32, {1, h}), angles));
  return turn_table(a.table, a.scale, angles, values, t, h, l);
}

// Where the numbers of axes begin behind `count` frequencies.
size_t axes_at(size_t count) { return (count * sizeof(float) + 63) / 64 * 64; }

// The same of several positions a token: which of them a frequency turns with lies behind the frequencies.
Status rope_table_axes(const RopeTableAxesArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), h = a.frequencies, columns = a.columns;
  const size_t bytes = static_cast<size_t>(t * h) * sizeof(float);
  const auto* axes = static_cast<const uint8_t*>(l.constant()) + axes_at(static_cast<size_t>(h));
  aclTensor* positions =
      l.tensor(l.scratch(static_cast<size_t>(t * columns) * sizeof(float)), DType::F32, {t, columns});
  aclTensor* angles = l.tensor(l.scratch(bytes), DType::F32, {t, h});
  aclTensor* values = l.tensor(l.scratch(bytes), DType::F32, {t, h});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.positions, DType::I32, {t, columns}), ACL_FLOAT, positions));
  RETURN_IF_ERROR(l.run(l.ops().index_select, positions, 1, l.tensor(axes, DType::I32, {h}), angles));
  RETURN_IF_ERROR(l.run(l.ops().mul, angles, l.tensor(l.constant(), DType::F32, {1, h}), angles));
  return turn_table(a.table, a.scale, angles, values, t, h, l);
}

// Positions that factors are made for, so that no index is held down on the device: the last factor is repeated.
constexpr int64_t kMostPositions = int64_t{1} << 22;

int64_t factors_of(const OpCall& c) {
  const auto given = static_cast<int64_t>(c.attrs->numbers("factors").size());
  return std::max(given, kMostPositions / c.attrs->integer("period") + 1);
}

// factors[(p + offset) / period] in fp32: half a position more keeps multiples of the period on their side, and is
// exact for as many positions.
Status position_scale(const PositionScaleArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens);
  const size_t bytes = static_cast<size_t>(t) * sizeof(float);
  aclTensor *numbers = l.tensor(l.scratch(bytes), DType::F32, {t}),
            *index = l.tensor(l.scratch(bytes), DType::I32, {t});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.positions, DType::I32, {t}), ACL_FLOAT, numbers));
  RETURN_IF_ERROR(l.run(l.ops().adds, numbers, l.number(0.5F + static_cast<float>(a.offset)), l.number(1), numbers));
  RETURN_IF_ERROR(l.run(l.ops().muls, numbers, l.number(1.0F / static_cast<float>(a.period)), numbers));
  RETURN_IF_ERROR(l.run(l.ops().cast, numbers, ACL_INT32, index));
  return l.run(l.ops().index_select, l.tensor(l.constant(), DType::F32, {l.way()}), 0, index,
               l.tensor(a.out, DType::F32, {t}));
}

Status accepts_rope_table(const OpCall& c) {
  if (c.attrs->integer("ntk_window") == 0) return Status::ok();
  return error(Code::Unsupported, "frequencies that change with the length (dynamic NTK) have no operator here");
}

Angles angles_of(const RopeArgs& a, Launch& l) {
  return {.data = a.table.data,
          .stored = a.table_type,
          .type = a.type,
          .tokens = l.size(a.tokens),
          .rotated = a.rotated,
          .planes = a.planes};
}

// Rotation of rows [T, H D] by the operator that takes positions: row t of the table for token t. It wants keys as
// well; a head of nothing stands for them.
Status turn_halves(const void* x, const RopeArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), heads = a.heads, d = a.size;
  const DType type = a.type;
  if (t > Context::kRows) return error(Code::Unsupported, "rope: {} tokens in one step, at most {}", t, Context::kRows);
  ASSIGN_OR_RETURN(aclTensor * table, rows_of_angles(angles_of(a, l), l));
  void* no_key = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  void* unused = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  return l.run(l.ops().rope_cache, l.tensor(l.constant(), DType::I64, {t}), l.tensor(x, type, {t, heads * d}),
               l.tensor(no_key, type, {t, d}), table, nullptr, d, true, l.tensor(a.out, type, {t, heads * d}),
               l.tensor(unused, type, {t, d}));
}

Status rope_halves(const RopeArgs& a, Launch& l) { return turn_halves(a.x.data, a, l); }

// Pairs of neighbours, which the operator itself puts apart (ops-transformer 57781440, interleave_rope_b11d.h:126-152).
Status rope_neighbours(const RopeArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), heads = a.heads, d = a.size;
  ASSIGN_OR_RETURN(const AnglePlanes angles, planes_of_angles(angles_of(a, l), l));
  return l.run(l.ops().interleave_rope, l.tensor(a.x, a.type, {t, heads, 1, d}), angles.cos, angles.sin,
               l.tensor(a.out, a.type, {t, heads, 1, d}));
}

// For CANN 8.1 and other sizes: neighbours are put apart first.
Status rope_apart(const RopeArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), heads = a.heads, d = a.size, all = t * heads * d;
  void* apart = l.scratch(static_cast<size_t>(all) * size_of(a.type));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(apart, a.type, {t * heads, 2, d / 2}),
                        l.view(a.x, a.type, {t * heads, 2, d / 2}, {d, 1, 2}, 0, all)));
  return turn_halves(apart, a, l);
}

// For sizes the former does not take, in fp32: each pair (x, y) becomes (x cos - y sin, y cos + x sin).
Status rope_by_parts(const RopeArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), heads = a.heads, d = a.size, rot = a.rotated;
  const int64_t h = rot / 2, all = t * heads * d;
  const DType type = a.type;
  const size_t bytes = static_cast<size_t>(t * heads * h) * sizeof(float);
  auto values = [&](void* data) { return l.tensor(data, DType::F32, {t, heads, h}); };
  // The first and second numbers of all pairs; in the result they always lie apart.
  auto part = [&](const void* data, int64_t second, bool apart = true) {
    return apart ? l.view(data, type, {t, heads, h}, {heads * d, d, 1}, second * h, all)
                 : l.view(data, type, {t, heads, h}, {heads * d, d, 2}, second, all);
  };
  auto turn = [&](int64_t sines) { return l.view(a.table, DType::F32, {t, 1, h}, {rot, rot, 1}, sines * h, t * rot); };
  aclTensor *x = values(l.scratch(bytes)), *y = values(l.scratch(bytes));
  aclTensor *u = values(l.scratch(bytes)), *v = values(l.scratch(bytes));
  if (rot < d)
    RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(a.out, type, {t, heads, d}), l.tensor(a.x, type, {t, heads, d})));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.x, 0, !a.interleaved), ACL_FLOAT, x));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.x, 1, !a.interleaved), ACL_FLOAT, y));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(-1), u));
  RETURN_IF_ERROR(l.run(l.ops().copy, part(a.out, 0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(1), u));
  return l.run(l.ops().copy, part(a.out, 1), u);
}

Status accepts_halves(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.attrs->integer("interleaved") != 0 || are_planes(c, 1, c.in[0].shape[0]))
    return error(Code::Unsupported, "RopeWithSinCosCache leaves pairs of neighbours where they are");
  return Status::ok();
}

// For heads that are rotated as a whole.
Status want_neighbours(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.attrs->integer("interleaved") == 0 || c.in[0].shape[2].factor != c.in[1].shape[1].factor)
    return error(Code::Unsupported, "takes whole heads of interleaved pairs, not {}", describe(c));
  return Status::ok();
}

Status accepts_neighbours(const OpCall& c) {
  RETURN_IF_ERROR(want_neighbours(c));
  if (c.in[1].dtype == DType::F32 || are_planes(c, 1, c.in[0].shape[0])) return Status::ok();
  return error(Code::Unsupported, "InterleaveRope takes cosines and sines apart");
}

Status accepts_rotation_apart(const OpCall& c) {
  RETURN_IF_ERROR(want_neighbours(c));
  if (!are_planes(c, 1, c.in[0].shape[0])) return Status::ok();
  return error(Code::Unsupported, "RopeWithSinCosCache takes rows of cosines and sines");
}

Status accepts_parts(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in[1].dtype == DType::F32) return Status::ok();
  return error(Code::Unsupported, "the parts of a rotation are computed in f32");
}

Status convert_angles(const RopeAnglesArgs& a, Launch& l) {
  const Angles from{.data = a.table.data, .type = a.type, .tokens = l.size(a.tokens), .rotated = a.rotated};
  if (a.planes) return write_planes(from, a.angles, l);
  return l.run(l.ops().cast, l.tensor(from.data, DType::F32, {from.tokens, from.rotated}), acl_type(from.type),
               l.tensor(a.angles, from.type, {from.tokens, from.rotated}));
}

Status widen_index(const IndexI64Args& a, Launch& l) {
  const int64_t n = l.size(a.count);
  return l.run(l.ops().cast, l.tensor(a.x, DType::I32, {n}), ACL_INT64, l.tensor(a.out, DType::I64, {n}));
}

Status accepts_index(const OpCall& c) {
  if (c.in[0].shape.rank() == 1) return Status::ok();
  return error(Code::Unsupported, "takes one list of indices, not {}", describe(c));
}

}  // namespace

void register_rotation(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto frequencies = [context](const OpCall& c, LaunchArgs& args) {
    const auto& numbers = c.attrs->numbers("inv_freq");
    std::string key = "frequencies";
    for (double f : numbers) key += fmt::format(" {:a}", f);
    args.constant = context->constant(key, numbers.size() * sizeof(float), [&](void* to) {
      std::transform(numbers.begin(), numbers.end(), static_cast<float*>(to),
                     [](double f) { return static_cast<float>(f); });
    });
  };
  const auto with_axes = [context](const OpCall& c, LaunchArgs& args) {
    const auto &numbers = c.attrs->numbers("inv_freq"), &axes = c.attrs->numbers("axes");
    std::string key = "frequencies and axes";
    for (size_t i = 0; i < numbers.size(); ++i) key += fmt::format(" {:a}:{}", numbers[i], axes[i]);
    const size_t at = axes_at(numbers.size());
    args.constant = context->constant(key, at + axes.size() * sizeof(int32_t), [&](void* to) {
      std::transform(numbers.begin(), numbers.end(), static_cast<float*>(to),
                     [](double f) { return static_cast<float>(f); });
      std::transform(axes.begin(), axes.end(), reinterpret_cast<int32_t*>(static_cast<uint8_t*>(to) + at),
                     [](double axis) { return static_cast<int32_t>(axis); });
    });
  };
  const auto row_numbers = [context](const OpCall&, LaunchArgs& args) { args.constant = context->row_numbers(); };
  const auto factors = [context](const OpCall& c, LaunchArgs& args) {
    const auto& numbers = c.attrs->numbers("factors");
    args.way = factors_of(c);
    std::string key = fmt::format("{} factors", args.way);
    for (double f : numbers) key += fmt::format(" {:a}", f);
    args.constant = context->constant(key, static_cast<size_t>(args.way) * sizeof(float), [&](void* to) {
      for (int64_t i = 0; i < args.way; ++i)
        static_cast<float*>(to)[i] = static_cast<float>(numbers[std::min(static_cast<size_t>(i), numbers.size() - 1)]);
    });
  };
  add(kernels, context, {"rope_table", kernel<rope_table>, frequencies, accepts_rope_table});
  add(kernels, context, {"rope_table_axes", kernel<rope_table_axes>, with_axes, want_constant_rows});
  add(kernels, context, {"position_scale", kernel<position_scale>, factors, want_constant_rows});
  add(kernels, context, {"rope", kernel<rope_halves>, row_numbers, accepts_halves});
  add(kernels, context, {"rope", kernel<rope_neighbours>, {}, accepts_neighbours, {}, ".neighbours"});
  add(kernels, context, {"rope", kernel<rope_apart>, row_numbers, accepts_rotation_apart, {}, ".apart", 75});
  add(kernels, context, {"rope", kernel<rope_by_parts>, {}, accepts_parts, {}, ".parts", 50});
  add(kernels, context, {"rope_angles", kernel<convert_angles>, {}, want_constant_rows});
  add(kernels, context, {"index_i64", kernel<widen_index>, {}, accepts_index});
}

}  // namespace reprise::ascend
