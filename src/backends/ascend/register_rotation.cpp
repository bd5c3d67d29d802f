// Entries of rotary positions: the table of cosines and sines, and the rotation of heads by it.
#include <algorithm>

#include "backends/ascend/entries.h"
#include "ops/args/rotation.h"

namespace reprise::ascend {
namespace {

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
  for (int64_t half : {0, 1}) {
    RETURN_IF_ERROR(l.run(half ? l.ops().sin : l.ops().cos, angles, values));
    if (a.scale != 1) RETURN_IF_ERROR(l.run(l.ops().muls, values, l.number(static_cast<float>(a.scale)), values));
    RETURN_IF_ERROR(l.run(l.ops().copy, l.view(a.table, DType::F32, {t, h}, {2 * h, 1}, half * h, t * 2 * h), values));
  }
  return Status::ok();
}

Status accepts_rope_table(const OpCall& c) {
  if (c.attrs->integer("ntk_window") == 0) return Status::ok();
  return error(Code::Unsupported, "frequencies that change with the length (dynamic NTK) have no operator here");
}

// One table cast to x's type, then the operator that takes positions: row t of the table for token t. It wants keys as
// well; a head of nothing stands for them.
Status rope_by_table(const RopeArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), heads = a.heads, d = a.size, rot = a.rotated;
  const DType type = a.type;
  if (t > Context::kRows) return error(Code::Unsupported, "rope: {} tokens in one step, at most {}", t, Context::kRows);
  aclTensor* table = l.tensor(a.table, DType::F32, {t, rot});
  if (type != DType::F32) {
    aclTensor* cast = l.tensor(l.scratch(static_cast<size_t>(t * rot) * size_of(type)), type, {t, rot});
    RETURN_IF_ERROR(l.run(l.ops().cast, table, acl_type(type), cast));
    table = cast;
  }
  void* nobody = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  void* unused = l.scratch(static_cast<size_t>(t * d) * size_of(type));
  return l.run(l.ops().rope_cache, l.tensor(l.constant(), DType::I64, {t}), l.tensor(a.x, type, {t, heads * d}),
               l.tensor(nobody, type, {t, d}), table, nullptr, d, !a.interleaved, l.tensor(a.out, type, {t, heads * d}),
               l.tensor(unused, type, {t, d}));
}

// For sizes the former does not take, in fp32: each pair (x, y) becomes (x cos - y sin, y cos + x sin).
Status rope_by_parts(const RopeArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), heads = a.heads, d = a.size, rot = a.rotated;
  const int64_t h = rot / 2, all = t * heads * d;
  const DType type = a.type;
  const size_t bytes = static_cast<size_t>(t * heads * h) * sizeof(float);
  auto values = [&](void* data) { return l.tensor(data, DType::F32, {t, heads, h}); };
  // The first and second numbers of all pairs, in x and in the result.
  auto part = [&](const void* data, int64_t second) {
    return a.interleaved ? l.view(data, type, {t, heads, h}, {heads * d, d, 2}, second, all)
                         : l.view(data, type, {t, heads, h}, {heads * d, d, 1}, second * h, all);
  };
  auto turn = [&](int64_t sines) { return l.view(a.table, DType::F32, {t, 1, h}, {rot, rot, 1}, sines * h, t * rot); };
  aclTensor *x = values(l.scratch(bytes)), *y = values(l.scratch(bytes));
  aclTensor *u = values(l.scratch(bytes)), *v = values(l.scratch(bytes));
  if (rot < d)
    RETURN_IF_ERROR(l.run(l.ops().copy, l.tensor(a.out, type, {t, heads, d}), l.tensor(a.x, type, {t, heads, d})));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.x, 0), ACL_FLOAT, x));
  RETURN_IF_ERROR(l.run(l.ops().cast, part(a.x, 1), ACL_FLOAT, y));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(-1), u));
  RETURN_IF_ERROR(l.run(l.ops().copy, part(a.out, 0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, y, turn(0), u));
  RETURN_IF_ERROR(l.run(l.ops().mul, x, turn(1), v));
  RETURN_IF_ERROR(l.run(l.ops().add, u, v, l.number(1), u));
  return l.run(l.ops().copy, part(a.out, 1), u);
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
  const auto row_numbers = [context](const OpCall&, LaunchArgs& args) { args.constant = context->row_numbers(); };
  add(kernels, context, {"rope_table", kernel<rope_table>, frequencies, accepts_rope_table});
  add(kernels, context, {"rope", kernel<rope_by_table>, row_numbers, want_constant_rows});
  add(kernels, context, {"rope", kernel<rope_by_parts>, {}, want_constant_rows, {}, ".parts", 50});
}

}  // namespace reprise::ascend
