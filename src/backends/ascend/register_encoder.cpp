// Entries of the ops of encoders and vision towers, and of pooled rows: attention of sequences that lie one behind the
// other, without caches and without an order of their rows.
//
// Where sequences begin is read on the host.
#include <algorithm>
#include <cmath>

#include "backends/ascend/entries.h"
#include "ops/args/encoder.h"

namespace reprise::ascend {
namespace {

constexpr i64 kFarthest = 2147483647;
constexpr int64_t kMostSegments = 2048;  // that the vendor's operator takes

// Rows that end sequences, ascending, the last one `tokens`. Empty sequences are left out; rows behind the last one
// belong to no sequence and get one of their own.
std::vector<int64_t> segment_ends(std::span<const int32_t> borders, int64_t tokens) {
  std::vector<int64_t> ends;
  int64_t last = 0;
  for (const int32_t border : borders)
    if (border > last && border <= tokens) ends.push_back(last = border);
  if (last < tokens) ends.push_back(tokens);
  return ends;
}

// As many sequences as there can be, none of them longer than another by more than a row.
std::vector<int64_t> most_segments(int64_t count, int64_t tokens) {
  count = std::clamp<int64_t>(count, 1, std::min(tokens, kMostSegments));
  std::vector<int64_t> ends;
  for (int64_t i = 1; i <= count; ++i) ends.push_back(tokens * i / count);
  return ends;
}

// The size of heads that the vendor's operator takes without kernels of its own before and behind it. Whether it has
// those depends on the lengths (MiracleDrawer/cann_ops_adv @ 5f95f56a,
// aclnn_flash_attention_score.cpp:247-282,358-364), and a captured launch that is updated has as many kernels as when
// it was recorded.
int64_t even_head(int64_t size) {
  const int64_t to = size < 196 || size == 448 ? 16 : 128;
  return (size + to - 1) / to * to;
}

Status attend_segments(const SegmentAttentionArgs& a, const std::array<const void*, 3>& qkv, void* out, int64_t size,
                       std::span<const int64_t> ends, Launch& l) {
  static char layout[] = "TND";
  const int64_t t = ends.back();
  const auto rows = [&](const void* data, int64_t heads) { return l.tensor(data, a.type, {t, heads, size}); };
  const auto sums = [&] {
    return l.tensor(l.scratch(static_cast<size_t>(t * a.heads * 8) * sizeof(float)), DType::F32, {t, a.heads, 8});
  };
  return l.run(l.ops().segment_attention, rows(qkv[0], a.heads), rows(qkv[1], a.kv_heads), rows(qkv[2], a.kv_heads),
               nullptr, nullptr, nullptr, nullptr, nullptr, l.integers(ends), l.integers(ends), a.scale, 1.0, kFarthest,
               kFarthest, a.heads, layout, 0, 0, sums(), sums(), nullptr, rows(out, a.heads));
}

Status attend_rows(const SegmentAttentionArgs& a, std::span<const int64_t> ends, Launch& l) {
  const int64_t t = ends.back(), d = a.size, wide = even_head(d);
  if (wide == d) return attend_segments(a, {a.q.data, a.k.data, a.v.data}, a.out.data, d, ends, l);
  const auto scratch = [&](int64_t heads) {
    return l.scratch(static_cast<size_t>(t * heads * wide) * size_of(a.type));
  };
  // The heads of a tensor of wider ones.
  const auto part = [&](void* of, int64_t heads) {
    return l.view(of, a.type, {t, heads, d}, {heads * wide, wide, 1}, 0, t * heads * wide);
  };
  std::array<const void*, 3> qkv{a.q.data, a.k.data, a.v.data};
  for (size_t i = 0; i < qkv.size(); ++i) {
    const int64_t heads = i == 0 ? a.heads : a.kv_heads;
    void* even = scratch(heads);
    RETURN_IF_ERROR(l.run(l.ops().zero, l.tensor(even, a.type, {t, heads, wide})));
    RETURN_IF_ERROR(l.run(l.ops().copy, part(even, heads), l.tensor(qkv[i], a.type, {t, heads, d})));
    qkv[i] = even;
  }
  void* out = scratch(a.heads);
  RETURN_IF_ERROR(attend_segments(a, qkv, out, wide, ends, l));
  return l.run(l.ops().copy, l.tensor(a.out, a.type, {t, a.heads, d}), part(out, a.heads));
}

Status segment_attention(const SegmentAttentionArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), borders = l.size(a.borders);
  const int32_t* host = l.host(0);
  // While a launch is recorded the borders are not staged yet; they come with the first update.
  const bool known = host && l.group() != Launch::Group::Record;
  if (known && !l.probing()) return attend_rows(a, segment_ends({host, static_cast<size_t>(borders)}, t), l);
  RETURN_IF_ERROR(attend_rows(a, most_segments(1, t), l));
  // More sequences are more work for the cores side by side, which takes more workspace.
  return l.at_bounds() ? attend_rows(a, most_segments(borders - 1, t), l) : Status::ok();
}

// The vendor's operator takes a window with a mask of 2048 x 2048 beside it, which no launch here makes.
Status accepts_segments(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.attrs->integer("window") == 0) return Status::ok();
  return error(Code::Unsupported, "attends to all rows of a sequence, not within a window of {}",
               c.attrs->integer("window"));
}

// The first row of the sequence that holds row `at`; the row itself where it belongs to none.
int64_t first_of(int64_t at, std::span<const int32_t> borders) {
  for (size_t r = 0; r + 1 < borders.size(); ++r)
    if (borders[r] <= at && at < borders[r + 1]) return borders[r];
  return at;
}

// The last row of each sequence: that of its number.
Status pool_last(const PoolRowsArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), n = l.size(a.count);
  const bool same = a.type == DType::F32;
  aclTensor* out = l.tensor(a.out, DType::F32, {n, a.width});
  aclTensor* picked =
      same ? out : l.tensor(l.scratch(static_cast<size_t>(n * a.width) * size_of(a.type)), a.type, {n, a.width});
  RETURN_IF_ERROR(
      l.run(l.ops().index_select, l.tensor(a.x, a.type, {t, a.width}), 0, l.tensor(a.rows, DType::I32, {n}), picked));
  return same ? Status::ok() : l.run(l.ops().cast, picked, ACL_FLOAT, out);
}

// The first row of each sequence, or the mean from there to the given one: one after the other.
Status pool_each(const PoolRowsArgs& a, Launch& l) {
  const int64_t t = l.size(a.tokens), n = l.size(a.count), borders = l.size(a.borders);
  const int32_t *starts = l.host(0), *rows = l.host(1);
  const bool known = starts && rows && !l.probing() && l.group() != Launch::Group::Record;
  constexpr int64_t kAlongRows[] = {0};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t end = known ? std::clamp<int64_t>(rows[i], 0, t - 1) + 1 : t;
    const int64_t first = known ? first_of(end - 1, {starts, static_cast<size_t>(borders)}) : 0;
    const int64_t count = a.kind == 1 ? end - first : 1;
    aclTensor* from = l.view(a.x, a.type, {count, a.width}, {a.width, 1}, first * a.width, t * a.width);
    aclTensor* to = l.view(a.out, DType::F32, {1, a.width}, {a.width, 1}, i * a.width, n * a.width);
    if (a.kind != 1) {
      RETURN_IF_ERROR(l.run(l.ops().copy, to, from));
      continue;
    }
    RETURN_IF_ERROR(l.run(l.ops().sum, from, l.integers(kAlongRows), true, ACL_FLOAT, to));
    RETURN_IF_ERROR(l.run(l.ops().muls, to, l.number(1.f / static_cast<float>(count)), to));
  }
  return Status::ok();
}

Status accepts_last(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  if (c.attrs->text("kind") == "last") return Status::ok();
  return error(Code::Unsupported, "picks the last rows of sequences, not kind \"{}\"", c.attrs->text("kind"));
}

Status widen_rows(const VectorsArgs& a, Launch& l) {
  const int64_t n = l.size(a.rows);
  return l.run(l.ops().cast, l.tensor(a.x, a.type, {n, a.width}), ACL_FLOAT, l.tensor(a.out, DType::F32, {n, a.width}));
}

// x / sqrt(sum of x^2) is the norm with 1 / sqrt(width) in the place of the weight; a row of zeros stays one.
Status unit_length(const VectorsArgs& a, Launch& l) {
  constexpr double kLeast = 1e-24;  // square of the length that stands for shorter ones
  const int64_t n = l.size(a.rows);
  void* rstd = l.scratch(static_cast<size_t>(n) * sizeof(float));
  return l.run(l.ops().rms_norm, l.tensor(a.x, DType::F32, {n, a.width}), l.tensor(l.constant(), DType::F32, {a.width}),
               kLeast / static_cast<double>(a.width), l.tensor(a.out, DType::F32, {n, a.width}),
               l.tensor(rstd, DType::F32, {n, 1}));
}

}  // namespace

void register_encoder(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto weight = [context](const OpCall& c, LaunchArgs& args) {
    const int64_t width = c.in[0].shape[1].factor;
    args.constant = context->constant(
        fmt::format("1 / sqrt({})", width), static_cast<size_t>(width) * sizeof(float), [width](void* to) {
          std::fill_n(static_cast<float*>(to), width, static_cast<float>(1 / std::sqrt(static_cast<double>(width))));
        });
  };
  add(kernels, context, {"segment_attention", kernel<segment_attention>, {}, accepts_segments, {3}});
  add(kernels, context, {"pool_rows", kernel<pool_last>, {}, accepts_last});
  add(kernels, context, {"pool_rows", kernel<pool_each>, {}, want_constant_rows, {1, 2}, ".each", 50});
  add(kernels, context, {"widen", kernel<widen_rows>, {}, want_constant_rows});
  add(kernels, context, {"l2_normalize", kernel<unit_length>, weight, want_constant_rows});
}

}  // namespace reprise::ascend
