// Products of oneDNN at given sizes, for tools/measure_onednn.py: weights reordered once into the layout oneDNN asks
// for and used again and again, as `reprise bench ops` does it. bf16 x bf16 -> bf16, and u8 x s8 -> s32 (without the
// scaling and rounding that our int8 linears do as well).
//
//   onednn M,K,N...    one line of JSON per size and type: median microseconds of one product
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void measure(dnnl::engine& engine, dnnl::stream& stream, int m, int k, int n, bool int8) {
  using dnnl::memory;
  using Type = memory::data_type;
  using Tag = memory::format_tag;
  const memory::desc a({m, k}, int8 ? Type::u8 : Type::bf16, Tag::ab),
      w({k, n}, int8 ? Type::s8 : Type::bf16, Tag::any), c({m, n}, int8 ? Type::s32 : Type::bf16, Tag::ab);
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(a, w, c), engine);
  const dnnl::matmul product(plan);
  memory x(plan.src_desc(), engine), weight(plan.weights_desc(), engine), y(plan.dst_desc(), engine);
  // Numbers of both signs from 1/2 to 2 in bf16: products of zeros draw less power, and clocks rise.
  for (memory* part : {&x, &weight}) {
    auto* to = static_cast<unsigned short*>(part->get_data_handle());
    unsigned seed = 1;
    for (size_t i = 0; i < part->get_desc().get_size() / 2; ++i) {
      seed = seed * 1664525u + 1013904223u;
      to[i] = static_cast<unsigned short>((seed >> 16 & 0x80ffu) | 0x3f00u);
    }
  }
  std::memset(y.get_data_handle(), 0, y.get_desc().get_size());
  const auto once = [&] {
    product.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, y}});
    stream.wait();
  };
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) once();
  for (const double begin = now(); times.size() < 20 || (now() - begin < 0.3 && times.size() < 2000);) {
    const double t = now();
    once();
    times.push_back((now() - t) * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  std::printf("{\"m\": %d, \"k\": %d, \"n\": %d, \"type\": \"%s\", \"us\": %.3f, \"kernel\": \"%s\"}\n", m, k, n,
              int8 ? "int8" : "bf16", times[times.size() / 2], plan.impl_info_str());
}

}  // namespace

int main(int argc, char** argv) {
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  for (int i = 1; i < argc; ++i) {
    int m = 0, k = 0, n = 0;
    if (std::sscanf(argv[i], "%d,%d,%d", &m, &k, &n) != 3 || m < 1 || k < 1 || n < 1) {
      std::fprintf(stderr, "\"%s\" is not M,K,N\n", argv[i]);
      return 2;
    }
    for (const bool int8 : {false, true}) measure(engine, stream, m, k, n, int8);
  }
}
