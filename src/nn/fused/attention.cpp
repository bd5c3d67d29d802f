// Fused ops between the query/key/value projection and attention.
#include "nn/functional.h"
#include "nn/fused/list.h"
#include "ops/core.h"

namespace reprise::nn {
namespace {

// Query, key and value heads [T, H, D] out of one projection [T, (H + 2 G) D]. RMS norm of every query and key head
// where weights are given, then the rotation.
std::vector<Tensor> split_qk_norm_rope(Tensor qkv, Tensor table, Tensor q_weight, Tensor k_weight, const Attrs& at) {
  const int64_t h = at.integer("heads"), g = at.integer("kv_heads"), width = qkv.dim(-1).factor;
  if (h <= 0 || g <= 0 || width % (h + 2 * g) != 0) {
    qkv.tracer()->fail(invalid("a width of {} is not divided by {} query, {} key and {} value heads", width, h, g, g));
    return std::vector<Tensor>(3, qkv);
  }
  const int64_t d = width / (h + 2 * g);
  Tensor q = heads(slice(qkv, 0, h * d), d);
  Tensor k = heads(slice(qkv, h * d, g * d), d);
  Tensor v = heads(slice(qkv, (h + g) * d, g * d), d);
  if (!q_weight.absent()) q = rms_norm(q, q_weight, at.number("eps"));
  if (!k_weight.absent()) k = rms_norm(k, k_weight, at.number("eps"));
  return {rope(q, table), rope(k, table), v};
}

constexpr int64_t kHeads = 26, kKvHeads = 13, kSize = 22, kPartial = 10;
constexpr double kEps = 0.0123;

enum class Cache : uint8_t { None, Joined, Split };

// With and without norms, the whole head or a part of it rotated.
std::vector<FusedExample> examples(Cache cache) {
  const DType dtype = DType::BF16;
  std::vector<FusedExample> out;
  for (int64_t rotated : {kSize, kPartial})
    for (bool norm : {true, false}) {
      FusedExample e;
      e.symbols = example_symbols();
      if (cache == Cache::Joined)
        e.in.push_back({dtype, {example_pages(), Dim(2), Dim(kKvHeads), Dim(kPageTokens), Dim(kSize)}});
      for (int i = 0; cache == Cache::Split && i < 2; ++i)
        e.in.push_back({dtype, {example_pages(), Dim(kPageTokens), Dim(kKvHeads * kSize)}});
      e.in.push_back({dtype, {example_tokens(), Dim((kHeads + 2 * kKvHeads) * kSize)}});
      e.in.push_back({DType::F32, {example_tokens(), Dim(rotated)}});
      if (cache != Cache::None) e.in.push_back({DType::I32, {example_tokens()}});
      for (int i = 0; norm && i < 2; ++i) e.in.push_back({dtype, {Dim(kSize)}});
      e.attrs = {{"heads", kHeads}, {"kv_heads", kKvHeads}, {"eps", norm ? kEps : 0.0}};
      out.push_back(std::move(e));
    }
  return out;
}

// What a token leaves in the caches of latent attention, out of its projection [T, C + R].
std::vector<Tensor> latent_rows(std::span<const Tensor> in, const Attrs& at) {
  const Tensor &kv = in[2], &weight = in[3];
  const int64_t width = weight.dim(0).factor, rotated = kv.dim(-1).factor - width;
  if (rotated <= 0) {
    kv.tracer()->fail(invalid("rows of {} hold no rotated part behind the {} of the latent", kv.dim(-1).factor, width));
    return {in[0], in[1]};
  }
  Tensor latent = rms_norm(slice(kv, 0, width), weight, at.number("eps"));
  Tensor key = rope_interleaved(heads(slice(kv, width, rotated), rotated), in[4]);
  return {row_write(in[0], latent, in[5]), row_write(in[1], flatten(key), in[5])};
}

FusedExample latent_rows_example() {
  const DType dtype = DType::BF16;
  constexpr int64_t kWidth = 34;
  return {example_symbols(),
          {{dtype, {example_pages(), Dim(kPageTokens), Dim(kWidth)}},
           {dtype, {example_pages(), Dim(kPageTokens), Dim(kPartial)}},
           {dtype, {example_tokens(), Dim(kWidth + kPartial)}},
           {dtype, {Dim(kWidth)}},
           {DType::F32, {example_tokens(), Dim(kPartial)}},
           {DType::I32, {example_tokens()}}},
          {{"eps", kEps}}};
}

}  // namespace

void add_attention_ops(FusedOps& ops) {
  ops.add(
      {"split_qk_norm_rope_kv(Cache(a!) kv, Tensor qkv, Tensor table, Index slots, Tensor? q_weight, Tensor? "
       "k_weight, *, "
       "int heads, int kv_heads, float eps = 0) -> (Tensor(a), Tensor)",
       "[P, 2, G, 128, D], [T, (H + 2 G) D], [T, rot] f32, [T] i32, [D]?, [D]? -> the cache with keys and values "
       "written, "
       "queries [T, H, D]: split, RMS norm of query and key heads, rotation, cache write",
       [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
         const auto t = split_qk_norm_rope(in[1], in[2], in[4], in[5], at);
         return {kv_write(in[0], t[1], t[2], in[3]), t[0]};
       },
       examples(Cache::Joined)});
  ops.add(
      {"split_qk_norm_rope(Tensor qkv, Tensor table, Tensor? q_weight, Tensor? k_weight, *, int heads, int kv_heads, "
       "float eps = 0) -> (Tensor, Tensor, Tensor)",
       "[T, (H + 2 G) D], [T, rot] f32, [D]?, [D]? -> queries [T, H, D], keys and values [T, G, D]: split, RMS norm of "
       "query "
       "and key heads, rotation",
       [](std::span<const Tensor> in, const Attrs& at) { return split_qk_norm_rope(in[0], in[1], in[2], in[3], at); },
       examples(Cache::None)});
  ops.add({.decl = "split_qk_norm_rope_rows(Cache(a!) keys, Cache(b!) values, Tensor qkv, Tensor table, Index slots, "
                   "Tensor? q_weight, Tensor? k_weight, *, int heads, int kv_heads, float eps = 0) -> (Tensor(a), "
                   "Tensor(b), Tensor)",
           .doc =
               "[P, 128, G D], [P, 128, G D], [T, (H + 2 G) D], [T, rot] f32, [T] i32, [D]?, [D]? -> the caches with "
               "keys and values written, queries [T, H, D]: split_qk_norm_rope_kv where keys and values have caches of "
               "their own",
           .meaning = [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
             const auto t = split_qk_norm_rope(in[2], in[3], in[5], in[6], at);
             return {row_write(in[0], flatten(t[1]), in[4]), row_write(in[1], flatten(t[2]), in[4]), t[0]};
           },
           .examples = examples(Cache::Split),
           .split_caches = true});
  ops.add({.decl = "latent_rows(Cache(a!) c_kv, Cache(b!) k_pe, Tensor kv, Tensor weight, Tensor table, Tensor "
                   "slots, *, float eps) -> (Tensor(a), Tensor(b))",
           .doc = "[P, 128, C], [P, 128, R], [T, C + R], [C], [T, R] f32, [T] i32 -> the caches with what tokens leave "
                  "there written: RMS norm of the latent, interleaved rotation of the rest",
           .meaning = latent_rows,
           .examples = {latent_rows_example()},
           .split_caches = true});
}

}  // namespace reprise::nn
