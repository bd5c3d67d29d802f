// Extensions that are wrong in one way each, chosen by KIND in the order of CMakeLists.txt.
#include "passes/extension_api.h"

namespace {

const char* yes(const reprise_call*) { return nullptr; }
void bind_nothing(const reprise_call*, reprise_args*) {}
void nothing() {}

[[maybe_unused]] reprise_kernel kernel() {
  reprise_kernel k{};
  k.name = "cpu.add.mine";
  k.op = "add";
  k.device = "cpu";
  k.accepts = yes;
  k.bind = bind_nothing;
  k.phase[0] = nothing;
  return k;
}

[[maybe_unused]] int declare(const reprise_host* host, const char* text) { return host->declare(host->context, text); }
[[maybe_unused]] int add(const reprise_host* host, const reprise_kernel& k) {
  return host->add_kernel(host->context, &k);
}

}  // namespace

extern "C" {

extern const uint32_t reprise_extension_abi;
#if KIND >= 1
const uint32_t reprise_extension_abi = KIND == 2 ? REPRISE_EXTENSION_ABI + 41 : REPRISE_EXTENSION_ABI;
#endif

#if KIND >= 2
int reprise_extension_register(const reprise_host* host) {
  reprise_kernel k = kernel();
  switch (KIND) {
    case 3: return 7;
    case 4:
      return declare(host,
                     "op \"silu_mul(Tensor x) -> Tensor\" { doc \"taken\" meaning graph \"g\" { symbol T <= 9\n"
                     "%0: f32[T, 26] = input(name=\"x\")\n%1: f32[T, 26] = silu(%0)\nreturn y=%1\n} }");
    case 5:
      declare(host, "op \"mine(Tensor x) -> Tensor\" {\n  doc \"d\"\n  oops");
      return 0;  // it is noted all the same
    case 6: k.op = "no_such_op"; return add(host, k);
    case 7: k.device = "abacus"; return add(host, k);
    case 8: return add(host, k) ? 1 : add(host, k);
    case 9: k.bind = nullptr; return add(host, k);
    case 10: return declare(host, nullptr);
    default: return 0;
  }
}
#endif
}
