#include "backends/ascend/angles.h"

namespace reprise::ascend {

Status write_planes(const Angles& a, void* to, Launch& l) {
  const int64_t t = a.tokens, rot = a.rotated, h = rot / 2;
  for (const int64_t sines : {0, 1})
    RETURN_IF_ERROR(l.run(l.ops().copy, l.view(to, a.type, {t, 2, h}, {rot, h, 1}, sines * t * rot, 2 * t * rot),
                          l.view(a.data, DType::F32, {t, 1, h}, {rot, rot, 1}, sines * h, t * rot)));
  return Status::ok();
}

Result<aclTensor*> rows_of_angles(const Angles& a, Launch& l) {
  aclTensor* table = l.tensor(a.data, a.stored, {a.tokens, a.rotated});
  if (a.stored == a.type) return table;
  const size_t bytes = static_cast<size_t>(a.tokens * a.rotated) * size_of(a.type);
  aclTensor* converted = l.tensor(l.scratch(bytes), a.type, {a.tokens, a.rotated});
  RETURN_IF_ERROR(l.run(l.ops().cast, table, acl_type(a.type), converted));
  return converted;
}

Result<AnglePlanes> planes_of_angles(const Angles& a, Launch& l) {
  const void* planes = a.data;
  if (!a.planes) {
    void* made = l.scratch(static_cast<size_t>(2 * a.tokens * a.rotated) * size_of(a.type));
    RETURN_IF_ERROR(write_planes(a, made, l));
    planes = made;
  }
  const auto plane = [&](int64_t sines) {
    const int64_t numbers = a.tokens * a.rotated;
    return l.view(planes, a.type, {a.tokens, 1, 1, a.rotated}, {a.rotated, a.rotated, a.rotated, 1}, sines * numbers,
                  2 * numbers);
  };
  return AnglePlanes{plane(0), plane(1)};
}

}  // namespace reprise::ascend
