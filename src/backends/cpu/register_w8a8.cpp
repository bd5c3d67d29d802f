// Entries of the int8 linears and of the ops fused with them.
#include "backends/cpu/kernels/argmax_shape.h"
#include "backends/cpu/kernels/w8a8_shape.h"
#include "backends/cpu/register.h"
#include "ops/args/products.h"

namespace reprise::cpu {
namespace {

// Words of a prepared row of x per group of four k: w8a8_tiles.h.
int x_words(Isa isa) {
#if defined(__x86_64__)
  return isa == Isa::Avx512 ? 1 : 2;
#else
  return 1;
#endif
}

template <class A, int kWords>
size_t product_bytes(const A& a, const LiveSizes& bound, int threads) {
  return static_cast<size_t>(threads) * w8a8_thread_bytes(a.shape.rows.value(bound), a.shape.depth, kWords);
}
template <int kWords>
size_t head_bytes(const LmHeadW8a8Args& a, const LiveSizes& bound, int threads) {
  return product_bytes<LmHeadW8a8Args, kWords>(a, bound, threads) + best_bytes(a.shape.rows.value(bound), threads);
}

template <int kWords>
void add_all(Entries& entries, const KernelTable& k) {
  const auto product = [&]<class A>(std::string_view op, const PerType& kernels, const A&) {
    entries.add(op, kernels, {.scratch = scratch(product_bytes<A, kWords>), .layouts = {"panel64"}});
  };
  product("linear_w8a8_static", k.linear_w8a8_static, LinearW8a8StaticArgs{});
  product("linear_w8a8_dynamic", k.linear_w8a8_dynamic, LinearW8a8DynamicArgs{});
  product("grouped_linear_w8a8_static", k.grouped_linear_w8a8_static, GroupedW8a8StaticArgs{});
  product("grouped_linear_w8a8_dynamic", k.grouped_linear_w8a8_dynamic, GroupedW8a8DynamicArgs{});
  entries.add(
      "lm_head_argmax_w8a8", k.lm_head_argmax_w8a8,
      {.any_second = k.lm_head_argmax_w8a8_merge, .scratch = scratch(head_bytes<kWords>), .layouts = {"panel64"}});
}

}  // namespace

void register_w8a8(KernelRegistry& kernels, Isa isa) {
  Entries entries(kernels, isa);
  if (x_words(isa) == 1)
    add_all<1>(entries, kernel_table(isa));
  else
    add_all<2>(entries, kernel_table(isa));
}

}  // namespace reprise::cpu
