#include "backends/ascend/recurrent_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace reprise::ascend {

void* RecurrentConstants::make(Context& context, int64_t key) {
  const int64_t words = 3 * Context::kRows + kPowers + 1 + key;
  return context.constant(fmt::format("rows of states, {}", key), static_cast<size_t>(words) * sizeof(float),
                          [key](void* to) {
                            auto* floats = static_cast<float*>(to);
                            std::iota(floats, floats + Context::kRows, 0.0F);
                            std::fill_n(floats + Context::kRows, Context::kRows, 1.0F);
                            auto* whole = static_cast<int32_t*>(to) + 2 * Context::kRows;
                            std::fill_n(whole, Context::kRows, 1);
                            for (int i = 0; i < kPowers; ++i) whole[Context::kRows + i] = 1 << i;
                            floats[3 * Context::kRows + kPowers] = 8.0F * Context::kRows;
                            std::fill_n(floats + 3 * Context::kRows + kPowers + 1, key,
                                        key > 0 ? 1.0F / std::sqrt(static_cast<float>(key)) : 0.0F);
                          });
}

Result<const void*> borders_in_floats(const Borders& b, Launch& l) {
  const int64_t n = b.sequences + 1;
  void* floats = words(n, l);
  RETURN_IF_ERROR(
      l.run(l.ops().cast, l.tensor(b.cu_seqlens, DType::I32, {n}), ACL_FLOAT, l.tensor(floats, DType::F32, {n})));
  return floats;
}

// A one where each begins, summed up; behind the last row of all a larger number.
Result<const void*> begun(const Borders& b, bool apart, const RecurrentConstants& c, Launch& l) {
  const int64_t places = b.rows + 1;  // a border may be behind the last row
  void *marks = words(places, l), *sums = words(b.rows, l);
  const auto mark = [&](int64_t border, int64_t n, const void* by) {
    return l.run(l.ops().scatter_nd, l.tensor(marks, DType::F32, {places}),
                 l.view(b.cu_seqlens, DType::I32, {n, 1}, {1, 1}, border, b.sequences + 1),
                 l.tensor(by, DType::F32, {n}));
  };
  RETURN_IF_ERROR(l.run(l.ops().zero, l.tensor(marks, DType::F32, {places})));
  RETURN_IF_ERROR(mark(0, b.sequences, c.ones()));
  if (apart) RETURN_IF_ERROR(mark(b.sequences, 1, c.many()));
  RETURN_IF_ERROR(l.run(l.ops().running_sum, l.tensor(marks, DType::F32, {b.rows}), 0, ACL_FLOAT,
                        l.tensor(sums, DType::F32, {b.rows})));
  return sums;
}

Result<const void*> whole_numbers(const void* floats, int64_t n, Launch& l) {
  void* whole = words(n, l);
  RETURN_IF_ERROR(l.run(l.ops().cast, l.tensor(floats, DType::F32, {n}), ACL_INT32, l.tensor(whole, DType::I32, {n})));
  return whole;
}

}  // namespace reprise::ascend
