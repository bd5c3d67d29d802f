// Entries of rotary positions: the table of cosines and sines, and the rotation of heads by it.
#include <algorithm>

#include "backends/ascend/entries.h"

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

// One table cast to x's type, then the operator that takes positions: row t of the table for token t. It wants keys as
// well; a head of nothing stands for them.
Status rope_by_table(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), heads = size(a, 1, live), d = size(a, 2, live), rot = size(a, 3, live);
  const DType type = type_of(a, 0);
  if (t > Context::kRows) return error(Code::Unsupported, "rope: {} tokens in one step, at most {}", t, Context::kRows);
  aclTensor* table = l.tensor(a.ptr[1], DType::F32, {t, rot});
  if (type != DType::F32) {
    aclTensor* cast = l.tensor(l.scratch(static_cast<size_t>(t * rot) * size_of(type)), type, {t, rot});
    RETURN_IF_ERROR(l.run(l.ops().cast, table, acl_type(type), cast));
    table = cast;
  }
  void* nobody = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  void* unused = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  return l.run(l.ops().rope_cache, l.tensor(a.ptr[3], DType::I64, {t}), l.tensor(a.ptr[0], type, {t, heads * d}),
               l.tensor(nobody, type, {t, d}), table, nullptr, d, a.scalar[0] == 0,
               l.tensor(a.ptr[2], type, {t, heads * d}), l.tensor(unused, type, {t, d}));
}

// For sizes the former does not take, in fp32: each pair (x, y) becomes (x cos - y sin, y cos + x sin).
Status rope_by_parts(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const int64_t t = size(a, 0, live), heads = size(a, 1, live), d = size(a, 2, live), rot = size(a, 3, live);
  const int64_t h = rot / 2, all = t * heads * d;
  const DType type = type_of(a, 0);
  const size_t bytes = static_cast<size_t>(t * heads * h) * sizeof(float);
  auto values = [&](void* data) { return l.tensor(data, DType::F32, {t, heads, h}); };
  // The first and second numbers of all pairs, in x and in the result.
  auto part = [&](void* data, int64_t second) {
    return a.scalar[0] != 0 ? l.view(data, type, {t, heads, h}, {heads * d, d, 2}, second, all)
                            : l.view(data, type, {t, heads, h}, {heads * d, d, 1}, second * h, all);
  };
  auto turn = [&](int64_t sines) { return l.view(a.ptr[1], DType::F32, {t, 1, h}, {rot, rot, 1}, sines * h, t * rot); };
  aclTensor *x = values(l.scratch(bytes)), *y = values(l.scratch(bytes));
  aclTensor *u = values(l.scratch(bytes)), *v = values(l.scratch(bytes));
  if (rot < d)
    RETURN_IF_ERROR(
        l.run(l.ops().copy, l.tensor(a.ptr[2], type, {t, heads, d}), l.tensor(a.ptr[0], type, {t, heads, d})));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.ptr[0], 0), ACL_FLOAT, x));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.ptr[0], 1), ACL_FLOAT, y));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(-1), u));
  RETURN_IF_ERROR(l.run(l.ops().copy, part(a.ptr[2], 0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(1), u));
  return l.run(l.ops().copy, part(a.ptr[2], 1), u);
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
    args.scalar[0] = static_cast<double>(c.attrs->integer("interleaved"));
    args.ptr[3] = context->row_numbers();
  };
  add(kernels, context, {"rope", rope_by_table, bind_rope, want_constant_rows});
  add(kernels, context, {"rope", rope_by_parts, bind_rope, want_constant_rows, {}, ".parts", 50});
}

}  // namespace reprise::ascend
