// An extension: one op, its kernels on two devices and, from the op's meaning, the rewrite that finds it in a model.
//
// A gated MLP computes gate and up in one product, cuts both out of it and multiplies them. slice_mul reads the second
// half where it lies, so that nobody copies it. Build it by itself with
//
//   g++ -O2 -shared -fPIC -I src examples/extension/slice_mul.cpp -o slice_mul.so
//
// and run any command with --extension slice_mul.so.
#include "passes/extension_api.h"

namespace {

const char kText[] = R"(
op "slice_mul(Tensor x, Tensor y, *, int begin, int size) -> Tensor" {
  doc "[T, size], [T, N] -> [T, size]: x times the columns [begin, begin + size) of y, rounded once"
  variable $begin = 26
  variable $size = 22
  meaning graph "slice_mul" {
    symbol T <= 24
    %0: bf16[T, $size] = input(name="x")
    %1: bf16[T, 68] = input(name="y")
    %2: bf16[T, $size] = slice(%1, begin=$begin, size=$size)
    %3: bf16[T, $size] = mul(%0, %2)
    return out=%3
  }
}
)";

struct Rows {
  const float *x, *y;
  float* out;
  int64_t width, stride;
};

Rows rows(const reprise_args* args, const int64_t* live) {
  const int64_t begin = reprise_size(args->dim[3], live);
  return {static_cast<const float*>(args->ptr[0]), static_cast<const float*>(args->ptr[1]) + begin,
          static_cast<float*>(args->ptr[2]), reprise_size(args->dim[1], live), reprise_size(args->dim[2], live)};
}

void multiply(const Rows& r, int64_t first, int64_t last) {
  for (int64_t t = first; t < last; ++t)
    for (int64_t i = 0; i < r.width; ++i) r.out[t * r.width + i] = r.x[t * r.width + i] * r.y[t * r.stride + i];
}

// Every thread takes its share of the tokens.
void cpu_kernel(const reprise_args* args, const int64_t* live, int thread, int threads) {
  const int64_t tokens = reprise_size(args->dim[0], live);
  multiply(rows(args, live), tokens * thread / threads, tokens * (thread + 1) / threads);
}

void null_kernel(const reprise_args* args, const int64_t* live) {
  multiply(rows(args, live), 0, reprise_size(args->dim[0], live));
}

const char* accepts(const reprise_call* call) {
  if (call->in[0].dtype != REPRISE_F32) return "slice_mul is written for f32";
  if (call->in[1].rank != 2 || call->in[1].size[1].symbol != 0) return "slice_mul needs rows of a constant size";
  return nullptr;
}

void bind(const reprise_call* call, reprise_args* args) {
  args->dim[0] = call->in[0].size[0];
  args->dim[1] = call->in[0].size[1];
  args->dim[2] = call->in[1].size[1];
  args->dim[3] = {call->attr[0].integer, 0};
}

}  // namespace

extern "C" {

extern const uint32_t reprise_extension_abi;
const uint32_t reprise_extension_abi = REPRISE_EXTENSION_ABI;

int reprise_extension_register(const reprise_host* host) {
  if (host->declare(host->context, kText)) return 1;
  reprise_kernel k{};
  k.op = "slice_mul";
  k.score = 100;
  k.accepts = accepts;
  k.bind = bind;
  k.name = "cpu.slice_mul.f32";
  k.device = "cpu";
  k.phase[0] = reinterpret_cast<reprise_phase>(cpu_kernel);
  if (host->add_kernel(host->context, &k)) return 1;
  k.name = "null.slice_mul.f32";
  k.device = "null";
  k.phase[0] = reinterpret_cast<reprise_phase>(null_kernel);
  return host->add_kernel(host->context, &k);
}
}
