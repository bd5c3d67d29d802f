// Latent attention's own operators: the cache of its latent rows and rotated keys, and products per head.
#include <algorithm>
#include <cstring>

#include "ascend/ops/check.h"
#include "ascend/ops/matrix.h"
#include "ascend/ops/norm.h"
#include "ascend/ops/rope.h"

namespace ascend_sim {

namespace {

struct LatentRows {
  Slot kv, gamma, cos, sin, index, keys, latents, keys_out, latents_out;
  float epsilon = 0;
  bool paged = false, fractal = false, outputs = false;
};

// Writes one row of floats to its slot of a cache.
void write_slot(const View& cache, const LatentRows& r, int64_t batch, int64_t slot, const std::vector<float>& row) {
  const auto width = static_cast<int64_t>(row.size());
  char* base = at<char>(cache);
  const int64_t element = cache.element();
  const int64_t all = r.paged ? cache.dim(0) * cache.dim(r.fractal ? 2 : 1) : cache.dim(2);
  if (slot >= all) {
    throw DeviceFault("aclnnKvRmsNormRopeCache: slot " + std::to_string(slot) + " is none of the " +
                      std::to_string(all));
  }
  if (!r.fractal) {
    const int64_t line = r.paged ? slot : batch * cache.dim(2) + slot;
    return write_run(cache.dtype, base + line * width * element, 1, width, row.data());
  }
  const int64_t block = cache.dim(2), lane = cache.dim(3);
  for (int64_t i = 0; i < width; i += lane) {
    const int64_t place = ((slot / block * cache.dim(1) + i / lane) * block + slot % block) * lane;
    write_run(cache.dtype, base + place * element, 1, lane, row.data() + i);
  }
}

void write_latents(const Operands& v, const LatentRows& r) {
  const int64_t width = v[r.gamma].count(), rope = v[r.cos].dim(-1), length = v[r.kv].dim(2),
                rows = v[r.kv].dim(0) * length;
  const std::vector<float> gamma = read(v[r.gamma]);
  const Dims angles{v[r.kv].dim(0), 1, length, rope};
  const std::vector<float> cos = read_as<float>(v[r.cos], angles), sin = read_as<float>(v[r.sin], angles);
  const std::vector<int64_t> slots = read<int64_t>(v[r.index]);
  std::vector<float> row(static_cast<size_t>(width + rope)), latent(static_cast<size_t>(width));
  std::vector<float> apart(static_cast<size_t>(rope)), key(apart.size());
  for (int64_t i = 0; i < rows; ++i) {
    read_row(v[r.kv], i, width + rope, row.data());
    norm_row(row.data(), gamma.data(), width, r.epsilon, latent.data());
    deinterleave(row.data() + width, rope, apart.data());
    rotate_half(apart.data(), &cos[static_cast<size_t>(i * rope)], &sin[static_cast<size_t>(i * rope)], rope,
                key.data());
    if (r.outputs) {
      write_row(v[r.keys_out], i, rope, key.data());
      write_row(v[r.latents_out], i, width, latent.data());
    }
    const int64_t slot = slots[static_cast<size_t>(i)];
    if (slot < 0) continue;  // documented to skip
    write_slot(v[r.keys], r, i / length, slot, key);
    write_slot(v[r.latents], r, i / length, slot, latent);
  }
}

// [blocks, size, 1, width], fractal [blocks, width / lane, size, lane], or without pages [batch, 1, length, width].
void check_cache(Operator& op, const LatentRows& r, Slot cache, int64_t width, const std::string& name) {
  op.same_dtype(cache, r.kv);
  op.rank(cache, 4, 4);
  if (!op.ok()) return;
  Dims expected = op[cache].shape;
  const int64_t lane = 32 / op[cache].element();
  if (r.fractal) {
    op.tiled(width % lane == 0, name + ": rows of " + std::to_string(width) + " are no multiple of 32 bytes");
    expected[1] = width / lane, expected[3] = lane;
  } else if (r.paged) {
    expected[2] = 1, expected[3] = width;
  } else {
    expected[0] = op[r.kv].dim(0), expected[1] = 1, expected[3] = width;
  }
  op.tiled(op[cache].shape == expected,
           name + " has shape " + text_of(op[cache].shape) + "; it needs " + text_of(expected));
  const int64_t block = op[cache].dim(r.fractal ? 2 : 1) * op[cache].element();
  op.tiled(!r.paged || block % 32 == 0, name + ": blocks must be a multiple of 32 bytes");
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnKvRmsNormRopeCacheGetWorkspaceSize(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index,
                                                    TensorRef kCacheRef, TensorRef ckvCacheRef,
                                                    Tensor kRopeScaleOptional, Tensor cKvScaleOptional,
                                                    Tensor kRopeOffsetOptional, Tensor cKvOffsetOptional,
                                                    double epsilon, char* cacheModeOptional, bool isOutputKv,
                                                    Tensor kRopeOut, Tensor cKvOut, uint64_t* workspaceSize,
                                                    aclOpExecutor** executor) {
  Operator op("aclnnKvRmsNormRopeCache", workspaceSize, executor, Since::Cann85);
  LatentRows r;
  r.kv = op.in("kv", kv), r.gamma = op.in("gamma", gamma), r.cos = op.in("cos", cos), r.sin = op.in("sin", sin);
  r.index = op.in("index", index);
  r.keys = op.ref("kCacheRef", kCacheRef), r.latents = op.ref("ckvCacheRef", ckvCacheRef);
  op.absent("kRopeScaleOptional", kRopeScaleOptional);
  op.absent("cKvScaleOptional", cKvScaleOptional);
  op.absent("kRopeOffsetOptional", kRopeOffsetOptional);
  op.absent("cKvOffsetOptional", cKvOffsetOptional);
  const std::string mode = op.text(cacheModeOptional);
  r.outputs = isOutputKv, r.epsilon = static_cast<float>(epsilon);
  // Both are REQUIRED outputs of its definition (kv_rms_norm_rope_cache_def.cpp:234,245), for every isOutputKv.
  r.keys_out = op.out("kRopeOut", kRopeOut), r.latents_out = op.out("cKvOut", cKvOut);
  op.attributes({isOutputKv});
  op.attribute(epsilon);
  if (!op.ok()) return op.status();
  op.tiled(mode.empty() || mode == "Norm" || mode == "PA" || mode == "PA_BNSD" || mode == "PA_NZ",
           "cacheMode \"" + mode + "\": Norm, PA, PA_BNSD and PA_NZ are simulated");
  r.fractal = mode == "PA_NZ", r.paged = mode.rfind("PA", 0) == 0;
  op.dtype(r.kv, {kHalf, kBf16});
  for (const Slot slot : {r.gamma, r.cos, r.sin, r.keys_out, r.latents_out}) op.same_dtype(slot, r.kv);
  op.dtype(r.index, {kInt64});
  for (const Slot slot : {r.kv, r.cos, r.sin}) op.rank(slot, 4, 4);
  op.rank(r.gamma, 1, 1);
  if (!op.ok()) return op.status();
  const int64_t batch = op[r.kv].dim(0), length = op[r.kv].dim(2), width = op[r.gamma].dim(0), rope = op[r.cos].dim(3);
  op.tiled(op[r.kv].dim(1) == 1, "kv " + text_of(op[r.kv].shape) + " needs one head");
  op.tiled(op[r.kv].dim(3) == width + rope && rope % 2 == 0, "rows of " + std::to_string(op[r.kv].dim(3)) +
                                                                 " are not gamma's " + std::to_string(width) +
                                                                 " and cos' " + std::to_string(rope));
  op.obeys(Rule::LatentRowSizes, width == 512 && rope == 64, std::to_string(width) + " and " + std::to_string(rope));
  op.shape(r.sin, op[r.cos].shape);
  const Dims angles{batch, 1, length, rope};
  op.tiled(broadcast(op[r.cos].shape, angles) == angles,
           "cos " + text_of(op[r.cos].shape) + " does not broadcast to " + text_of(angles));
  op.shape(r.index, r.paged ? Dims{batch * length} : Dims{batch, length});
  check_cache(op, r, r.keys, rope, "kCacheRef");
  check_cache(op, r, r.latents, width, "ckvCacheRef");
  op.shape(r.keys_out, angles);
  op.shape(r.latents_out, {batch, 1, length, width});
  const double bytes =
      op[r.kv].bytes() * (isOutputKv ? 3 : 2) + 2 * op[r.cos].bytes() + op[r.gamma].bytes() + op[r.index].bytes();
  return op.finish(
      Unit::Vector, static_cast<double>(op[r.kv].count()) * 5, [=](const Operands& v) { write_latents(v, r); }, bytes);
}
ACLNN_PHASE2(aclnnKvRmsNormRopeCache);

// One product per head of operands that lie token after token: out[m][b] = x1[m][b] . x2[b].
aclnnStatus aclnnTransposeBatchMatMulGetWorkspaceSize(Tensor x1, Tensor x2, Tensor bias, Tensor scale, Ints permX1,
                                                      Ints permX2, Ints permY, int8_t cubeMathType,
                                                      const int32_t batchSplitFactor, TensorRef out,
                                                      uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnTransposeBatchMatMul", workspaceSize, executor, Since::Cann85);
  const Slot a = op.in("x1", x1), b = op.in("x2", x2);
  op.absent("bias", bias);
  op.absent("scale", scale);
  const Dims perm1 = op.ints("permX1", permX1, true), perm2 = op.ints("permX2", permX2, true);
  const Dims perm = op.ints("permY", permY, true);
  const Slot y = op.out("out", out);
  op.attributes({cubeMathType, batchSplitFactor});
  if (!op.ok()) return op.status();
  op.dtype(a, {kFloat, kHalf, kBf16});
  op.same_dtype(b, a);
  op.same_dtype(y, a);
  op.rank(a, 3, 3);
  op.rank(b, 3, 3);
  const bool tokens_first = perm1 == Dims{1, 0, 2}, turned = perm2 == Dims{0, 2, 1};
  op.tiled(tokens_first || perm1 == Dims{0, 1, 2}, "permX1 " + text_of(perm1) + " may be [0, 1, 2] or [1, 0, 2]");
  op.tiled(turned || perm2 == Dims{0, 1, 2}, "permX2 " + text_of(perm2) + " may be [0, 1, 2] or [0, 2, 1]");
  op.tiled((perm == Dims{1, 0, 2}), "permY " + text_of(perm) + " must be [1, 0, 2]");
  op.valid(cubeMathType >= 0 && cubeMathType <= 3, "cubeMathType may be 0 to 3");
  if (!op.ok()) return op.status();
  const int64_t heads = op[a].dim(tokens_first ? 1 : 0), rows = op[a].dim(tokens_first ? 0 : 1), depth = op[a].dim(2);
  const int64_t columns = op[b].dim(turned ? 1 : 2), split = batchSplitFactor;
  op.valid(op[b].dim(0) == heads && op[b].dim(turned ? 2 : 1) == depth,
           "x1 " + text_of(op[a].shape) + " and x2 " + text_of(op[b].shape) + " do not fit");
  op.tiled(depth < 65536 && columns < 65536 && (!tokens_first || heads * depth < 65536),
           "rows must be shorter than 65536");
  op.tiled(split >= 1 && heads % std::max<int64_t>(1, split) == 0,
           "batchSplitFactor must divide the " + std::to_string(heads) + " heads");
  if (!op.ok()) return op.status();
  op.shape(y, split == 1 ? Dims{rows, heads, columns} : Dims{split, rows, heads / split * columns});
  const double operations = 2.0 * static_cast<double>(heads * rows) * static_cast<double>(depth * columns);
  return op.finish(Unit::Cube, operations, [=](const Operands& v) {
    std::vector<float> sums(static_cast<size_t>(rows * columns)), all(static_cast<size_t>(heads * rows * columns));
    const int64_t share = heads / split;
    for (int64_t head = 0; head < heads; ++head) {
      Matrix left = matrix_of(v[a]), right = matrix_of(v[b], head * v[b].strides[0]);
      left.rows = rows;
      left.row_step = tokens_first ? heads * depth : depth;
      left.data += head * (tokens_first ? depth : rows * depth) * v[a].element();
      if (turned) {
        std::swap(right.rows, right.columns);
        std::swap(right.row_step, right.column_step);
      }
      multiply(left, right, sums.data());
      for (int64_t m = 0; m < rows; ++m) {  // part, token, head within the part
        const int64_t line = (head / share * rows + m) * share + head % share;
        std::copy_n(sums.data() + m * columns, columns, all.data() + line * columns);
      }
    }
    write(v[y], all);
  });
}
ACLNN_PHASE2(aclnnTransposeBatchMatMul);

}  // extern "C"
