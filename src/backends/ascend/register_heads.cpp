// Entries between the product of queries, keys and values, and attention: norms of heads, rotation, cache write.
//
// Nothing is sliced. The rotation walks rows by strides of its own, and so does the cache writer in its mode Nct: query
// heads, key heads and values are read where the product left them. A norm has no strides (it would copy its operand
// first), so it runs over all heads of the product as rows; those it was not meant for are read by nobody.
#include "backends/ascend/angles.h"
#include "ops/core.h"

namespace reprise::ascend {
namespace {

int64_t size(const LaunchArgs& args, int i, const LiveSizes& live) {
  return args.dim[static_cast<size_t>(i)].value(live);
}

enum Dims { kTokens, kHeads, kKvHeads, kSize, kRotated, kPages };
enum Pointers { kKeys, kValues, kProduct, kTable, kSlots, kQueryWeight, kKeyWeight };
constexpr size_t kQueries = 9, kRowNumbers = 10;

struct Heads {
  int64_t tokens, query, key, row;  // numbers of all query heads, of all key heads, of a row of the product
  int64_t pages;
  DType type;
};

Heads heads_of(const LaunchArgs& a, const LiveSizes& live) {
  const int64_t h = size(a, kHeads, live), g = size(a, kKvHeads, live), d = size(a, kSize, live);
  return {size(a, kTokens, live), h * d, g * d, (h + 2 * g) * d, size(a, kPages, live), type_of(a, kProduct)};
}

// The product, or its heads normed with that weight.
Result<void*> normed(const Heads& s, bool given, void* weight, const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  if (!given) return a.ptr[kProduct];
  const int64_t d = size(a, kSize, live), heads = s.tokens * (s.row / d);
  void* y = l.scratch(static_cast<size_t>(s.tokens * s.row) * size_of(s.type));
  void* rstd = l.scratch(static_cast<size_t>(heads) * sizeof(float));
  RETURN_IF_ERROR(l.run(l.ops().rms_norm, l.tensor(a.ptr[kProduct], s.type, {heads, d}), l.tensor(weight, s.type, {d}),
                        a.scalar[0], l.tensor(y, s.type, {heads, d}), l.tensor(rstd, DType::F32, {heads, 1})));
  return y;
}

// Rotated queries to the result, rotated keys to memory of the thunk.
Result<void*> rotate(const Heads& s, const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  if (s.tokens > Context::kRows)
    return error(Code::Unsupported, "split_qk_norm_rope_rows: {} tokens in one step, at most {}", s.tokens,
                 Context::kRows);
  ASSIGN_OR_RETURN(void* q, normed(s, a.scalar[1] != 0, a.ptr[kQueryWeight], a, live, l));
  ASSIGN_OR_RETURN(void* k, normed(s, a.scalar[2] != 0, a.ptr[kKeyWeight], a, live, l));
  const int64_t rotated = size(a, kRotated, live), all = s.tokens * s.row;
  ASSIGN_OR_RETURN(
      aclTensor * table,
      rows_of_angles(
          {.data = a.ptr[kTable], .stored = type_of(a, kTable), .type = s.type, .tokens = s.tokens, .rotated = rotated},
          l));
  void* keys = l.scratch(static_cast<size_t>(s.tokens * s.key) * size_of(s.type));
  RETURN_IF_ERROR(l.run(l.ops().rope_cache, l.tensor(a.ptr[kRowNumbers], DType::I64, {s.tokens}),
                        l.view(q, s.type, {s.tokens, s.query}, {s.row, 1}, 0, all),
                        l.view(k, s.type, {s.tokens, s.key}, {s.row, 1}, s.query, all), table, nullptr,
                        size(a, kSize, live), true, l.tensor(a.ptr[kQueries], s.type, {s.tokens, s.query}),
                        l.tensor(keys, s.type, {s.tokens, s.key})));
  return keys;
}

aclTensor* cache(void* data, const Heads& s, Launch& l) {
  return l.tensor(data, s.type, {s.pages, kPageTokens, 1, s.key});
}

Status write(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const Heads s = heads_of(a, live);
  ASSIGN_OR_RETURN(void* keys, rotate(s, a, live, l));
  const auto rows = [&](void* data) { return l.tensor(data, s.type, {s.tokens, 1, s.key}); };
  const auto slots = [&] { return l.tensor(a.ptr[kSlots], type_of(a, kSlots), {s.tokens}); };
  // Previews of CANN 8.3 have the operator without the three arguments behind the cache's mode. With none of them given
  // such a library answers 161001; with them it would take the mode for the place of its workspace's size.
  if (l.probing())
    RETURN_IF_ERROR(l.run(l.ops().scatter_kv, rows(keys), cache(a.ptr[kKeys], s, l), slots(), rows(keys),
                          cache(a.ptr[kValues], s, l), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  static char by_rows[] = "Norm";
  alignas(uint64_t) static char apart[8] = "Nct";
  const int64_t strides[] = {s.key, s.row}, offsets[] = {0, s.query + s.key};
  return l.run(l.ops().scatter_kv, rows(keys), cache(a.ptr[kKeys], s, l), slots(), rows(a.ptr[kProduct]),
               cache(a.ptr[kValues], s, l), nullptr, nullptr, nullptr, by_rows, apart, l.integers(strides),
               l.integers(offsets));
}

// For CANN 8.1, which has no operator for caches: values are made contiguous by the operator that scatters.
Status write_scattered(const LaunchArgs& a, const LiveSizes& live, Launch& l) {
  const Heads s = heads_of(a, live);
  ASSIGN_OR_RETURN(void* keys, rotate(s, a, live, l));
  const auto scatter = [&](void* to, aclTensor* rows) {
    return l.run(l.ops().scatter_nd, l.tensor(to, s.type, {s.pages * kPageTokens, s.key}),
                 l.tensor(a.ptr[kSlots], type_of(a, kSlots), {s.tokens, 1}), rows);
  };
  RETURN_IF_ERROR(scatter(a.ptr[kKeys], l.tensor(keys, s.type, {s.tokens, s.key})));
  return scatter(a.ptr[kValues],
                 l.view(a.ptr[kProduct], s.type, {s.tokens, s.key}, {s.row, 1}, s.query + s.key, s.tokens * s.row));
}

// The rotation begins to read at multiples of 32 bytes, whatever it is given.
Status accepts(const OpCall& c) {
  RETURN_IF_ERROR(want_constant_rows(c));
  const int64_t heads = c.attrs->integer("heads") + 2 * c.attrs->integer("kv_heads");
  if (const int64_t d = c.in[kProduct].shape[1].factor / heads; d % 32 != 0)
    return error(Code::Unsupported, "heads of {} numbers; allowed: multiples of 32", d);
  if (are_planes(c, kTable, c.in[kProduct].shape[0]))
    return error(Code::Unsupported, "RopeWithSinCosCache takes rows of cosines and sines");
  return Status::ok();
}

}  // namespace

void register_heads(KernelRegistry& kernels, const std::shared_ptr<Context>& context) {
  auto bind = [context](const OpCall& c, LaunchArgs& args) {
    const int64_t h = c.attrs->integer("heads"), g = c.attrs->integer("kv_heads");
    args.dim[kTokens] = c.in[kProduct].shape[0];
    args.dim[kHeads] = Dim(h);
    args.dim[kKvHeads] = Dim(g);
    args.dim[kSize] = Dim(c.in[kProduct].shape[1].factor / (h + 2 * g));
    args.dim[kRotated] = c.in[kTable].shape[1];
    args.dim[kPages] = c.in[kKeys].shape[0];
    args.scalar[0] = c.attrs->number("eps");
    args.scalar[1] = c.in.size() > kQueryWeight ? 1 : 0;
    args.scalar[2] = c.in.size() > kKeyWeight ? 1 : 0;
    args.ptr[kRowNumbers] = context->row_numbers();
  };
  add(kernels, context, {"split_qk_norm_rope_rows", write, bind, accepts});
  add(kernels, context, {"split_qk_norm_rope_rows", write_scattered, bind, accepts, {}, ".scattered", 50});
}

}  // namespace reprise::ascend
