// Entries of rotary positions: the table of cosines and sines, and the rotation of heads by it.
#include <algorithm>

#include "backends/ascend/angles.h"

namespace reprise::ascend {
namespace {

int64_t size(const LaunchArgs& args, int i, const LiveSizes& live) {
  return args.dim[static_cast<size_t>(i)].value(live);
}

// positions [T] times frequencies [h] in fp32, as HF computes it; cosines into the left half of out [T, 2 h], sines
// into the right one.
Status rope_table(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), h = size(a, 1, live);
  const size_t bytes = static_cast<size_t>(t * h) * sizeof(float);
  aclTensor* positions = l.tensor(l.scratch(static_cast<size_t>(t) * sizeof(float)), DType::F32, {t, 1});
  aclTensor* angles = l.tensor(l.scratch(bytes), DType::F32, {t, h});
  aclTensor* values = l.tensor(l.scratch(bytes), DType::F32, {t, h});
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(a.ptr[0], type_of(a, 0), {t, 1}), ACL_FLOAT, positions));
  RETURN_IF_ERROR(l.run(l.ops().mul, positions, l.tensor(a.ptr[2], DType::F32, {1, h}), angles));
  for (int64_t half : {0, 1}) {
    RETURN_IF_ERROR(l.run(half ? l.ops().sin : l.ops().cos, angles, values));
    if (a.scalar[0] != 1)
      RETURN_IF_ERROR(l.run(l.ops().muls, values, l.number(static_cast<float>(a.scalar[0])), values));
    RETURN_IF_ERROR(l.run(l.ops().copy, l.view(a.ptr[1], DType::F32, {t, h}, {2 * h, 1}, half * h, t * 2 * h), values));
  }
  return Status::ok();
}

Status accepts_rope_table(const OpCall& c) {
  if (c.attrs->integer("ntk_window") == 0) return Status::ok();
  return error(Code::Unsupported, "frequencies that change with the length (dynamic NTK) have no operator here");
}

enum RopeScalar { kInterleaved, kPlanes };

Angles angles_of(const LaunchArgs& a, const LiveSizes& live) {
  return {.data = a.ptr[1],
          .stored = type_of(a, 1),
          .type = type_of(a, 0),
          .tokens = size(a, 0, live),
          .rotated = size(a, 3, live),
          .planes = a.scalar[kPlanes] != 0};
}

// Rotation of rows [T, H D] by the operator that takes positions: row t of the table for token t. It wants keys as
// well; a head of nothing stands for them.
Status turn_halves(void* x, const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), heads = size(a, 1, live), d = size(a, 2, live);
  const DType type = type_of(a, 0);
  if (t > Context::kRows) return error(Code::Unsupported, "rope: {} tokens in one step, at most {}", t, Context::kRows);
  ASSIGN_OR_RETURN(aclTensor * table, rows_of_angles(angles_of(a, live), l));
  void* nobody = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  void* unused = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  return l.run(l.ops().rope_cache, l.tensor(a.ptr[3], DType::I64, {t}), l.tensor(x, type, {t, heads * d}),
               l.tensor(nobody, type, {t, d}), table, nullptr, d, true, l.tensor(a.ptr[2], type, {t, heads * d}),
               l.tensor(unused, type, {t, d}));
}

Status rope_halves(const LaunchArgs& a, const LiveSizes& live, Launch& l) { return turn_halves(a.ptr[0], a, live, l); }

// Pairs of neighbours, which the operator itself puts apart (ops-transformer 57781440, interleave_rope_b11d.h:126-152).
Status rope_neighbours(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), heads = size(a, 1, live), d = size(a, 2, live);
  const DType type = type_of(a, 0);
  ASSIGN_OR_RETURN(const AnglePlanes angles, planes_of_angles(angles_of(a, live), l));
  return l.run(l.ops().interleave_rope, l.tensor(a.ptr[0], type, {t, heads, 1, d}), angles.cos, angles.sin,
               l.tensor(a.ptr[2], type, {t, heads, 1, d}));
}

// For CANN 8.1 and other sizes: neighbours are put apart first.
Status rope_apart(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), heads = size(a, 1, live), d = size(a, 2, live), all = t * heads * d;
  const DType type = type_of(a, 0);
  void* apart = l.scratch(static_cast<size_t>(all) * size_of(type));
  RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(apart, type, {t * heads, 2, d / 2}),
                        l.view(a.ptr[0], type, {t * heads, 2, d / 2}, {d, 1, 2}, 0, all)));
  return turn_halves(apart, a, live, l);
}

// For sizes the former does not take, in fp32: each pair (x, y) becomes (x cos - y sin, y cos + x sin).
Status rope_by_parts(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), heads = size(a, 1, live), d = size(a, 2, live), rot = size(a, 3, live);
  const int64_t h = rot / 2, all = t * heads * d;
  const DType type = type_of(a, 0);
  const size_t bytes = static_cast<size_t>(t * heads * h) * sizeof(float);
  auto values = [&](void* data) { return l.tensor(data, DType::F32, {t, heads, h}); };
  // The first and second numbers of all pairs; in the result they always lie apart.
  auto part = [&](void* data, int64_t second, bool apart = true) {
    return apart ? l.view(data, type, {t, heads, h}, {heads * d, d, 1}, second * h, all)
                 : l.view(data, type, {t, heads, h}, {heads * d, d, 2}, second, all);
  };
  const bool apart = a.scalar[kInterleaved] == 0;
  auto turn = [&](int64_t sines) { return l.view(a.ptr[1], DType::F32, {t, 1, h}, {rot, rot, 1}, sines * h, t * rot); };
  aclTensor *x = values(l.scratch(bytes)), *y = values(l.scratch(bytes));
  aclTensor *u = values(l.scratch(bytes)), *v = values(l.scratch(bytes));
  if (rot < d)
    RETURN_IF_ERROR(
        l.run(l.ops().copy, l.tensor(a.ptr[2], type, {t, heads, d}), l.tensor(a.ptr[0], type, {t, heads, d})));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.ptr[0], 0, apart), ACL_FLOAT, x));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.ptr[0], 1, apart), ACL_FLOAT, y));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(-1), u));
  RETURN_IF_ERROR(l.run(l.ops().copy, part(a.ptr[2], 0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(1), u));
  return l.run(l.ops().copy, part(a.ptr[2], 1), u);
}

Status accepts_halves(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.attrs->integer("interleaved") != 0 || are_planes(c, 1, c.in[0].shape[0]))
    return error(Code::Unsupported, "RopeWithSinCosCache leaves pairs of neighbours where they are");
  return Status::ok();
}

// Of heads that are rotated as a whole.
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

Status accepts_apart(const OpCall& c) {
  RETURN_IF_ERROR(want_neighbours(c));
  if (!are_planes(c, 1, c.in[0].shape[0])) return Status::ok();
  return error(Code::Unsupported, "RopeWithSinCosCache takes rows of cosines and sines");
}

Status accepts_parts(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.in[1].dtype == DType::F32) return Status::ok();
  return error(Code::Unsupported, "the parts of a rotation are computed in f32");
}

Status convert_angles(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const Angles from{.data = a.ptr[0], .type = type_of(a, 1), .tokens = size(a, 0, live), .rotated = size(a, 1, live)};
  if (a.scalar[0] != 0) return write_planes(from, a.ptr[1], l);
  return l.run(l.ops().cast, l.tensor(from.data, DType::F32, {from.tokens, from.rotated}), acl_type(from.type),
               l.tensor(a.ptr[1], from.type, {from.tokens, from.rotated}));
}

Status widen_index(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t n = size(a, 0, live);
  return l.run(l.ops().cast, l.tensor(a.ptr[0], DType::I32, {n}), ACL_INT64, l.tensor(a.ptr[1], DType::I64, {n}));
}

Status accepts_index(const OpCall& c) {
  if (c.in[0].shape.rank() == 1) return Status::ok();
  return error(Code::Unsupported, "takes one list of indices, not {}", describe(c));
}

}  // namespace

void register_rotation(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  auto bind_table = [context](const OpCall& c, LaunchArgs& args) {
    const auto& frequencies = c.attrs->numbers("inv_freq");
    args.dim[0] = c.in[0].shape[0];
    args.dim[1] = Dim(static_cast<int64_t>(frequencies.size()));
    args.scalar[0] = c.attrs->number("scale");
    std::string key = "frequencies";
    for (double f : frequencies) key += fmt::format(" {:a}", f);
    args.ptr[2] = context->constant(key, frequencies.size() * sizeof(float), [&](void* to) {
      std::transform(frequencies.begin(), frequencies.end(), static_cast<float*>(to),
                     [](double f) { return static_cast<float>(f); });
    });
  };
  add(kernels, context, {"rope_table", rope_table, bind_table, accepts_rope_table});

  auto bind_rope = [context](const OpCall& c, LaunchArgs& args) {
    const Shape& s = c.in[0].shape;
    args.dim[0] = s[0];
    args.dim[1] = s[1];
    args.dim[2] = s[2];
    args.dim[3] = c.in[1].shape[1];
    args.scalar[kInterleaved] = static_cast<double>(c.attrs->integer("interleaved"));
    args.scalar[kPlanes] = are_planes(c, 1, s[0]) ? 1 : 0;
    args.ptr[3] = context->row_numbers();
  };
  add(kernels, context, {"rope", rope_halves, bind_rope, accepts_halves});
  add(kernels, context, {"rope", rope_neighbours, bind_rope, accepts_neighbours, {}, ".neighbours"});
  add(kernels, context, {"rope", rope_apart, bind_rope, accepts_apart, {}, ".apart", 75});
  add(kernels, context, {"rope", rope_by_parts, bind_rope, accepts_parts, {}, ".parts", 50});

  auto bind_angles = [](const OpCall& c, LaunchArgs& args) {
    args.dim[0] = c.in[0].shape[0];
    args.dim[1] = c.in[0].shape[1];
    args.scalar[0] = static_cast<double>(c.attrs->integer("planes"));
  };
  add(kernels, context, {"rope_angles", convert_angles, bind_angles, want_constant_rows});
  auto bind_index = [](const OpCall& c, LaunchArgs& args) { args.dim[0] = c.in[0].shape[0]; };
  add(kernels, context, {"index_i64", widen_index, bind_index, accepts_index});
}

}  // namespace reprise::ascend
