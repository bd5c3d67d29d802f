// Entries of the int8 linears and of the ops fused with them.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/w8a8_shape.h"
#include "backends/cpu/product_bytes.h"
#include "backends/cpu/register.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

// How x is laid out for the products: words of a prepared row per group of four k, or for tile registers too
// (w8a8_tiles.h).
enum class Rows : uint8_t { Words1, Words2, Tiles };

Rows rows_of(Isa isa) {
#if defined(__x86_64__)
  return has_tiles(isa) ? Rows::Tiles : isa == Isa::Avx512 ? Rows::Words1 : Rows::Words2;
#else
  return Rows::Words1;
#endif
}

template <class A, Rows kRows>
size_t int8_bytes(const A& a, const LiveSizes& bound, int threads) {
  const int64_t rows = a.shape.rows.value(bound), k = a.shape.depth;
  // The emulation of tiles takes two words for few rows.
  const size_t words = w8a8_thread_bytes(rows, k, kRows == Rows::Words1 ? 1 : 2);
  return team_bytes(threads, words, kRows == Rows::Tiles, rows, k);
}
template <Rows kRows>
size_t int8_head_bytes(const LmHeadW8a8Args& a, const LiveSizes& bound, int threads) {
  return int8_bytes<LmHeadW8a8Args, kRows>(a, bound, threads) + best_bytes(a.shape.rows.value(bound), threads);
}

template <Rows kRows>
void add_all(Entries& entries, const KernelTable& k) {
  const auto product = [&]<class A>(std::string_view op, const PerType& kernels, const A&) {
    entries.add(op, kernels, {.scratch = scratch(int8_bytes<A, kRows>), .layouts = {"panel64"}});
  };
  product("linear_w8a8_static", k.linear_w8a8_static, LinearW8a8StaticArgs{});
  product("linear_w8a8_dynamic", k.linear_w8a8_dynamic, LinearW8a8DynamicArgs{});
  product("grouped_linear_w8a8_static", k.grouped_linear_w8a8_static, GroupedW8a8StaticArgs{});
  product("grouped_linear_w8a8_dynamic", k.grouped_linear_w8a8_dynamic, GroupedW8a8DynamicArgs{});
  entries.add(
      "lm_head_argmax_w8a8", k.lm_head_argmax_w8a8,
      {.any_second = k.lm_head_argmax_w8a8_merge, .scratch = scratch(int8_head_bytes<kRows>), .layouts = {"panel64"}});
}

}  // namespace

void register_w8a8(KernelRegistry& kernels, Isa isa) {
  Entries entries(kernels, isa);
  const KernelTable& k = kernel_table(isa);
  switch (rows_of(isa)) {
    case Rows::Words1: return add_all<Rows::Words1>(entries, k);
    case Rows::Words2: return add_all<Rows::Words2>(entries, k);
    case Rows::Tiles: return add_all<Rows::Tiles>(entries, k);
  }
}

}  // namespace reprise::cpu
