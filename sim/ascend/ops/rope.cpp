// Rotary positions, in the four forms the vendor has them.
#include "ascend/ops/rope.h"

#include "ascend/ops/check.h"

namespace ascend_sim {

void rotate_half(const float* x, const float* cos, const float* sin, int64_t width, float* y) {
  const int64_t half = width / 2;
  for (int64_t i = 0; i < half; ++i) {
    y[i] = x[i] * cos[i] - x[i + half] * sin[i];
    y[i + half] = x[i + half] * cos[i + half] + x[i] * sin[i + half];
  }
}

void rotate_pairs(const float* x, const float* cos, const float* sin, int64_t width, float* y) {
  for (int64_t i = 0; i < width; i += 2) {
    y[i] = x[i] * cos[i] - x[i + 1] * sin[i];
    y[i + 1] = x[i + 1] * cos[i + 1] + x[i] * sin[i + 1];
  }
}

void deinterleave(const float* x, int64_t width, float* y) {
  for (int64_t i = 0; i < width / 2; ++i) {
    y[i] = x[2 * i];
    y[i + width / 2] = x[2 * i + 1];
  }
}

namespace {

// y = rotate(x) with cos and sin broadcast to the shape of x.
template <typename Rotate>
void rotate_all(const View& x, const View& cos, const View& sin, const View& y, Rotate rotate) {
  const std::vector<float> in = read(x);
  const std::vector<float> c = read_as<float>(cos, x.shape), s = read_as<float>(sin, x.shape);
  std::vector<float> out(in.size());
  const int64_t width = x.dim(-1), count = x.count();
  for (int64_t at = 0; at < count; at += width) rotate(&in[at], &c[at], &s[at], width, &out[at]);
  write(y, out);
}

void check_angles(Operator& op, Slot x, Slot cos, Slot sin) {
  op.same_dtype(cos, x);
  op.same_dtype(sin, x);
  op.rank(cos, op[x].rank(), op[x].rank());
  op.shape(sin, op[cos].shape);
}

// Unified buffer of one row of 16-bit heads, as documented for bf16; a 4-byte type is taken to need twice that.
bool heads_fit(int64_t heads, int64_t width, int64_t element) {
  const int64_t bytes = (20 * heads * width + 16 * width) * (element == 4 ? 2 : 1);
  return bytes <= static_cast<int64_t>(machine().unified_buffer);
}

// The position whose angles a pair of dimensions uses: sections of pairs belong to one row of positions each.
std::vector<int64_t> rows_of_pairs(const Dims& sections, int64_t pairs) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < sections.size(); ++i) rows.insert(rows.end(), static_cast<size_t>(sections[i]), i);
  rows.resize(static_cast<size_t>(pairs), 0);
  return rows;
}

struct CacheRope {
  Slot positions, query, key, cache, query_out, key_out;
  Dims sections;
  int64_t head = 0;
  bool neox = true;
};

void rotate_from_cache(const Operands& v, const CacheRope& r) {
  const View& cache = v[r.cache];
  const std::vector<int64_t> positions = read<int64_t>(v[r.positions]);
  const std::vector<float> angles = read(cache);
  const int64_t rotary = cache.dim(-1), pairs = rotary / 2, tokens = v[r.query].dim(0);
  const std::vector<int64_t> rows = rows_of_pairs(r.sections, pairs);
  std::vector<float> cos(static_cast<size_t>(rotary)), sin(cos.size());
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t position = positions[static_cast<size_t>(rows[pair] * tokens + token)];
      if (position < 0 || position >= cache.dim(0)) {
        throw DeviceFault("aclnnRopeWithSinCosCache: position " + std::to_string(position) +
                          " is outside of the cache");
      }
      const float c = angles[static_cast<size_t>(position * rotary + pair)];
      const float s = angles[static_cast<size_t>(position * rotary + pairs + pair)];
      const int64_t first = r.neox ? pair : 2 * pair, second = r.neox ? pair + pairs : 2 * pair + 1;
      cos[first] = cos[second] = c;
      sin[first] = sin[second] = s;
    }
    for (const bool key : {false, true}) {
      const View &from = v[key ? r.key : r.query], &to = v[key ? r.key_out : r.query_out];
      const int64_t width = from.dim(-1);
      std::vector<float> in(static_cast<size_t>(width));
      read_run(from.dtype, at<char>(from) + token * from.strides[0] * from.element(), 1, width, in.data());
      std::vector<float> out = in;
      for (int64_t at = 0; at < width; at += r.head) {
        (r.neox ? rotate_half : rotate_pairs)(&in[at], cos.data(), sin.data(), rotary, &out[at]);
      }
      write_row(to, token, width, out.data());
    }
  }
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnApplyRotaryPosEmbGetWorkspaceSize(TensorRef queryRef, TensorRef keyRef, Tensor cos, Tensor sin,
                                                   int64_t layout, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnApplyRotaryPosEmb", workspaceSize, executor);
  const Slot q = op.ref("queryRef", queryRef), k = op.ref("keyRef", keyRef);
  const Slot c = op.in("cos", cos), s = op.in("sin", sin);
  op.attributes({layout});
  if (!op.ok()) return op.status();
  op.tiled(layout == 1 || layout == 4, "layout is " + std::to_string(layout) + "; it may be 1 (BSND) or 4 (TND)");
  op.dtype(q, {kFloat, kHalf, kBf16});
  for (const Slot slot : {k, c, s}) op.same_dtype(slot, q);
  const int64_t rank = layout == 4 ? 3 : 4;
  for (const Slot slot : {q, k, c, s}) op.rank(slot, rank, rank);
  if (!op.ok()) return op.status();
  Dims keys = op[q].shape, angles = op[q].shape;
  keys[keys.size() - 2] = op[k].dim(-2);
  angles[angles.size() - 2] = 1;
  op.shape(k, keys);
  op.shape(c, angles);
  op.shape(s, angles);
  const int64_t width = op[q].dim(-1), heads = op[q].dim(-2) + op[k].dim(-2);
  op.tiled(width == 64 || width == 128, "the head size is " + std::to_string(width) + "; it may be 64 or 128");
  op.tiled(heads_fit(heads, width, op[q].element()),
           std::to_string(heads) + " heads of " + std::to_string(width) + " do not fit the unified buffer");
  return op.finish(Unit::Vector, static_cast<double>(op[q].count() + op[k].count()) * 3, [=](const Operands& v) {
    rotate_all(v[q], v[c], v[s], v[q], rotate_half);
    rotate_all(v[k], v[c], v[s], v[k], rotate_half);
  });
}
ACLNN_PHASE2(aclnnApplyRotaryPosEmb);

aclnnStatus aclnnRotaryPositionEmbeddingGetWorkspaceSize(Tensor x, Tensor cos, Tensor sin, int64_t mode, TensorRef out,
                                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnRotaryPositionEmbedding", workspaceSize, executor, Since::Cann85);
  const Slot in = op.in("x", x), c = op.in("cos", cos), s = op.in("sin", sin), y = op.out("out", out);
  op.attributes({mode});
  if (!op.ok()) return op.status();
  op.dtype(in, {kFloat, kHalf, kBf16});
  op.same_dtype(y, in);
  op.rank(in, 3, 4);
  op.shape(y, op[in].shape);
  check_angles(op, in, c, s);
  op.tiled(mode == 0 || mode == 1, "mode is " + std::to_string(mode) + "; it may be 0 (half) or 1 (interleave) here");
  if (!op.ok()) return op.status();
  op.tiled(broadcast(op[c].shape, op[in].shape) == op[in].shape && op[c].dim(-1) == op[in].dim(-1),
           "cos " + text_of(op[c].shape) + " does not broadcast to x " + text_of(op[in].shape));
  const int64_t width = op[in].dim(-1);
  op.tiled(width % 2 == 0 && width < 896,
           "the head size is " + std::to_string(width) + "; it must be even and below 896");
  const bool four = op[in].rank() == 4;
  op.tiled((!four || op[in].dim(0) < 1000) && op[in].dim(-2) < 1000, "batch and heads must be below 1000");
  return op.finish(Unit::Vector, static_cast<double>(op[in].count()) * 3, [=](const Operands& v) {
    rotate_all(v[in], v[c], v[s], v[y], mode == 0 ? rotate_half : rotate_pairs);
  });
}
ACLNN_PHASE2(aclnnRotaryPositionEmbedding);

aclnnStatus aclnnInterleaveRopeGetWorkspaceSize(Tensor x, Tensor cos, Tensor sin, TensorRef out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnInterleaveRope", workspaceSize, executor, Since::Cann85);
  const Slot in = op.in("x", x), c = op.in("cos", cos), s = op.in("sin", sin), y = op.out("out", out);
  if (!op.ok()) return op.status();
  op.dtype(in, {kHalf, kBf16});
  op.same_dtype(y, in);
  op.rank(in, 4, 4);
  op.shape(y, op[in].shape);
  check_angles(op, in, c, s);
  if (!op.ok()) return op.status();
  op.tiled(op[in].dim(-1) == 64, "the last dimension is " + std::to_string(op[in].dim(-1)) + "; it must be 64");
  op.tiled(broadcast(op[c].shape, op[in].shape) == op[in].shape && op[c].dim(-1) == 64,
           "cos " + text_of(op[c].shape) + " does not broadcast to x " + text_of(op[in].shape));
  return op.finish(Unit::Vector, static_cast<double>(op[in].count()) * 3, [=](const Operands& v) {
    rotate_all(v[in], v[c], v[s], v[y],
               [](const float* from, const float* cosine, const float* sine, int64_t width, float* to) {
                 float apart[64];
                 deinterleave(from, width, apart);
                 rotate_half(apart, cosine, sine, width, to);
               });
  });
}
ACLNN_PHASE2(aclnnInterleaveRope);

aclnnStatus aclnnRopeWithSinCosCacheGetWorkspaceSize(Tensor positions, Tensor queryIn, Tensor keyIn, Tensor cosSinCache,
                                                     Ints mropeSection, int64_t headSize, bool isNeoxStyle,
                                                     TensorRef queryOut, TensorRef keyOut, uint64_t* workspaceSize,
                                                     aclOpExecutor** executor) {
  Operator op("aclnnRopeWithSinCosCache", workspaceSize, executor);
  CacheRope r;
  r.positions = op.in("positions", positions);
  // The kernel gets the strides of rows as attributes (OT-2608 aclnn_rope_with_sin_cos_cache.cpp:255-260; OT-2511
  // ditto :183-188); the others are made contiguous before it.
  r.query = op.in("queryIn", queryIn, Walk::Strides), r.key = op.in("keyIn", keyIn, Walk::Strides);
  r.cache = op.in("cosSinCache", cosSinCache);
  r.sections = op.ints("mropeSection", mropeSection, false);
  r.query_out = op.out("queryOut", queryOut), r.key_out = op.out("keyOut", keyOut);
  r.head = headSize, r.neox = isNeoxStyle;
  op.attributes({headSize, isNeoxStyle});
  if (!op.ok()) return op.status();
  op.dtype(r.positions, {kInt32, kInt64});
  op.dtype(r.query, {kFloat, kHalf, kBf16});
  for (const Slot slot : {r.key, r.cache, r.query_out, r.key_out}) op.same_dtype(slot, r.query);
  for (const Slot slot : {r.query, r.key, r.cache}) op.rank(slot, 2, 2);
  op.shape(r.query_out, op[r.query].shape);
  op.shape(r.key_out, op[r.key].shape);
  if (!op.ok()) return op.status();
  const int64_t tokens = op[r.query].dim(0), rotary = op[r.cache].dim(1), step = 64 / op[r.query].element();
  op.valid(op[r.key].dim(0) == tokens, "queryIn and keyIn have different numbers of tokens");
  op.tiled(headSize > 0 && headSize % step == 0 && rotary % step == 0 && rotary <= headSize && rotary > 0,
           "headSize and the width of cosSinCache must be multiples of " + std::to_string(step) +
               ", and the width at most headSize");
  if (!op.ok()) return op.status();
  op.tiled(op[r.query].dim(1) % headSize == 0 && op[r.key].dim(1) % headSize == 0, "rows must be whole heads");
  for (const Slot slot : {r.query, r.key}) {
    const View& rows = op[slot];
    op.obeys(Rule::RopeStrides,
             rows.strides[1] == 1 && rows.strides[0] >= rows.dim(1) && rows.strides[0] * rows.element() % 32 == 0 &&
                 rows.offset * rows.element() % 32 == 0,
             "strides " + text_of(rows.strides) + " of rows of " + std::to_string(rows.dim(1)) + ", offset " +
                 std::to_string(rows.offset));
  }
  const bool sections = !r.sections.empty();
  const Dims s = r.sections;
  op.tiled(
      !sections || s == Dims{16, 24, 24} || s == Dims{24, 20, 20} || s == Dims{8, 12, 12} || s == Dims{16, 16, 16, 16},
      "mropeSection " + text_of(s) + " may be [16, 24, 24], [24, 20, 20], [8, 12, 12] or [16, 16, 16, 16]");
  if (sections) {
    int64_t pairs = 0;
    for (const int64_t section : s) pairs += section;
    op.tiled(pairs * 2 == rotary, "mropeSection must add up to half the width of cosSinCache");
  }
  op.shape(r.positions, sections ? Dims{static_cast<int64_t>(s.size()), tokens} : Dims{tokens});
  const double bytes =
      op.bytes_of_all() - op[r.cache].bytes() + static_cast<double>(tokens * rotary * op[r.cache].element());
  return op.finish(
      Unit::Vector, static_cast<double>(op[r.query].count() + op[r.key].count()) * 3,
      [=](const Operands& v) { rotate_from_cache(v, r); }, bytes);
}
ACLNN_PHASE2(aclnnRopeWithSinCosCache);

}  // extern "C"
