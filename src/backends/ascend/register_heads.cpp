// Entries between the product of queries, keys and values, and attention: norms of heads, rotation, cache write.
//
// Nothing is sliced. The rotation walks rows by strides of its own, and so does the cache writer in its mode Nct: query
// heads, key heads and values are read where the product left them. A norm has no strides (it would copy its operand
// first), so it runs over all heads of the product as rows; those it was not meant for are not read.
#include "backends/ascend/angles.h"
#include "ops/args/rotation.h"
#include "ops/core.h"

namespace reprise::ascend {
namespace {

struct Heads {
  int64_t tokens, query, key, row;  // numbers of all query heads, of all key heads, of a row of the product
  int64_t pages;
  DType type;
};

Heads heads_of(const SplitRowsArgs& a, Launch& l) {
  const SplitSizes& z = a.sizes;
  const int64_t query = z.heads * z.size, key = z.kv_heads * z.size;
  return {l.size(z.tokens), query, key, query + 2 * key, l.size(a.pages), z.type};
}

// The product, or its heads normed with that weight.
Result<const void*> normed(const Heads& s, const In& weight, const SplitRowsArgs& a, Launch& l) {
  if (!weight) return a.qkv.data;
  const int64_t d = a.sizes.size, heads = s.tokens * (s.row / d);
  void* y = l.scratch(static_cast<size_t>(s.tokens * s.row) * size_of(s.type));
  void* rstd = l.scratch(static_cast<size_t>(heads) * sizeof(float));
  RETURN_IF_ERROR(l.run(l.ops().rms_norm, l.tensor(a.qkv, s.type, {heads, d}), l.tensor(weight, s.type, {d}),
                        a.sizes.eps, l.tensor(y, s.type, {heads, d}), l.tensor(rstd, DType::F32, {heads, 1})));
  return y;
}

// Rotated queries to the result, rotated keys to memory of the thunk.
Result<void*> rotate(const Heads& s, const SplitRowsArgs& a, Launch& l) {
  if (s.tokens > Context::kRows)
    return error(Code::Unsupported, "split_qk_norm_rope_rows: {} tokens in one step, at most {}", s.tokens,
                 Context::kRows);
  ASSIGN_OR_RETURN(const void* q, normed(s, a.q_weight, a, l));
  ASSIGN_OR_RETURN(const void* k, normed(s, a.k_weight, a, l));
  const int64_t rotated = a.sizes.rotated, all = s.tokens * s.row;
  ASSIGN_OR_RETURN(
      aclTensor * table,
      rows_of_angles(
          {.data = a.table.data, .stored = a.sizes.table_type, .type = s.type, .tokens = s.tokens, .rotated = rotated},
          l));
  void* keys = l.scratch(static_cast<size_t>(s.tokens * s.key) * size_of(s.type));
  RETURN_IF_ERROR(l.run(l.ops().rope_cache, l.tensor(l.constant(), DType::I64, {s.tokens}),
                        l.view(q, s.type, {s.tokens, s.query}, {s.row, 1}, 0, all),
                        l.view(k, s.type, {s.tokens, s.key}, {s.row, 1}, s.query, all), table, nullptr, a.sizes.size,
                        true, l.tensor(a.q, s.type, {s.tokens, s.query}), l.tensor(keys, s.type, {s.tokens, s.key})));
  return keys;
}

aclTensor* cache(void* data, const Heads& s, Launch& l) {
  return l.tensor(data, s.type, {s.pages, kPageTokens, 1, s.key});
}

Status write(const SplitRowsArgs& a, Launch& l) {
  const Heads s = heads_of(a, l);
  ASSIGN_OR_RETURN(void* keys, rotate(s, a, l));
  const auto rows = [&](const void* data) { return l.tensor(data, s.type, {s.tokens, 1, s.key}); };
  const auto slots = [&] { return l.tensor(a.slots, DType::I32, {s.tokens}); };
  // Previews of CANN 8.3 have the operator without the three arguments behind the cache's mode. With none of them given
  // such a library answers 161001; with them it would take the mode for the place of its workspace's size.
  if (l.probing())
    RETURN_IF_ERROR(l.ask(l.ops().scatter_kv, rows(keys), cache(a.keys, s, l), slots(), rows(keys),
                          cache(a.values, s, l), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  static char by_rows[] = "Norm";
  alignas(uint64_t) static char apart[8] = "Nct";
  const int64_t strides[] = {s.key, s.row}, offsets[] = {0, s.query + s.key};
  return l.run(l.ops().scatter_kv, rows(keys), cache(a.keys, s, l), slots(), rows(a.qkv), cache(a.values, s, l),
               nullptr, nullptr, nullptr, by_rows, apart, l.integers(strides), l.integers(offsets));
}

// For CANN 8.1, which has no operator for caches: values are made contiguous by the operator that scatters.
Status write_scattered(const SplitRowsArgs& a, Launch& l) {
  const Heads s = heads_of(a, l);
  ASSIGN_OR_RETURN(void* keys, rotate(s, a, l));
  const auto scatter = [&](void* to, aclTensor* rows) {
    return l.run(l.ops().scatter_nd, l.tensor(to, s.type, {s.pages * kPageTokens, s.key}),
                 l.tensor(a.slots, DType::I32, {s.tokens, 1}), rows);
  };
  RETURN_IF_ERROR(scatter(a.keys, l.tensor(keys, s.type, {s.tokens, s.key})));
  return scatter(a.values, l.view(a.qkv, s.type, {s.tokens, s.key}, {s.row, 1}, s.query + s.key, s.tokens * s.row));
}

// The rotation begins to read at multiples of 32 bytes, also for other addresses.
Status accepts(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  const int64_t heads = c.attrs->integer("heads") + 2 * c.attrs->integer("kv_heads");
  if (const int64_t d = c.in[2].shape[1].factor / heads; d % 32 != 0)
    return error(Code::Unsupported, "heads of {} numbers; allowed: multiples of 32", d);
  if (are_planes(c, 3, c.in[2].shape[0]))
    return error(Code::Unsupported, "RopeWithSinCosCache takes rows of cosines and sines");
  return Status::ok();
}

}  // namespace

void register_heads(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  const auto row_numbers = [context](const OpCall&, LaunchArgs& args) { args.constant = context->row_numbers(); };
  add(kernels, context, {"split_qk_norm_rope_rows", kernel<write>, row_numbers, accepts});
  add(kernels, context,
      {"split_qk_norm_rope_rows", kernel<write_scattered>, row_numbers, accepts, {}, ".scattered", 50});
}

}  // namespace reprise::ascend
