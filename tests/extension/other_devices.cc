// An extension with kernels for devices that this machine need not have: their functions run on the host in tests.
#include "passes/extension_api.h"

namespace {

const char* yes(const reprise_call*) { return nullptr; }
void bind(const reprise_call*, reprise_args* args) {
  args->dim[0] = {1, 3};  // as many numbers as the step has of symbol 3
  args->scalar[0] = 0.5;
}
// z = x + y + 0.5, and where the launch was, in front of z.
void add(const reprise_args* args, const int64_t* live, void* stream) {
  const auto *x = static_cast<const float*>(args->ptr[0]), *y = static_cast<const float*>(args->ptr[1]);
  auto** out = static_cast<void**>(args->ptr[2]);
  out[0] = stream;
  auto* z = reinterpret_cast<float*>(out + 1);
  for (int64_t i = 0; i < live[args->dim[0].symbol]; ++i) z[i] = x[i] + y[i] + static_cast<float>(args->scalar[0]);
}
void twice(const reprise_args* args, const int64_t* live, void*) {
  auto* z = reinterpret_cast<float*>(static_cast<void**>(args->ptr[2]) + 1);
  for (int64_t i = 0; i < live[args->dim[0].symbol]; ++i) z[i] *= 2;
}

}  // namespace

extern "C" {
extern const uint32_t reprise_extension_abi;
const uint32_t reprise_extension_abi = REPRISE_EXTENSION_ABI;

int reprise_extension_register(const reprise_host* host) {
  const char* const kinds[][2] = {{"cuda", "cuda.add.mine"}, {"ascend", "ascend.add.mine"}};
  for (const auto& [device, name] : kinds) {
    reprise_kernel k{};
    k.name = name;
    k.op = "add";
    k.device = device;
    k.score = 1000;
    k.accepts = yes;
    k.bind = bind;
    k.phase[0] = reinterpret_cast<reprise_phase>(add);
    k.phase[1] = reinterpret_cast<reprise_phase>(twice);
    if (host->add_kernel(host->context, &k)) return 1;
  }
  return 0;
}
}
