// CUDA's paged attention on the SIMT executor: near the CPU's, and the same bits alone, in company, in chunks, with
// other pages, and however the work is cut.
#include <gtest/gtest.h>

#include "backends/cuda/kernels/attention_sizes.h"
#include "backends/paged_step.h"
#include "simt/cuda_runner.h"

namespace reprise::simt::attention_test {
namespace {

using namespace cpu;

struct Model {
  DType dtype = DType::BF16;
  bool int8 = false;
  int64_t heads = 4, kv_heads = 2, size = 64, window = 0;
  double softcap = 0;
  bool sinks = false;
  int64_t chunk = 0;
  DType cache() const { return int8 ? DType::I8 : dtype; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
  std::string name() const {
    return fmt::format("{}{} H {} G {} D {} window {} chunk {} cap {}{}", dtype_name(dtype), int8 ? " in i8" : "",
                       heads, kv_heads, size, window, chunk, softcap, sinks ? " sinks" : "");
  }
};

struct Sequence {
  TestTensor q, k, v;
};
Sequence sequence(const Model& m, int64_t length, uint32_t seed) {
  return {random_tensor(m.dtype, {length, m.heads, m.size}, seed, -3, 3),
          random_tensor(m.dtype, {length, m.kv_heads, m.size}, seed + 1000, -3, 3),
          random_tensor(m.dtype, {length, m.kv_heads, m.size}, seed + 2000, -1, 1)};
}

struct Part {
  const Sequence* sequence;
  int64_t from, to;
};

TestTensor step(const OpRunner& runner, const Model& m, const std::vector<Part>& parts, uint32_t pages = 1) {
  const PagedStep at(parts, pages);
  std::vector<TestTensor> q, k, v;
  for (const Part& p : parts) {
    q.push_back(rows_of(p.sequence->q, p.from, p.to - p.from));
    k.push_back(rows_of(p.sequence->k, 0, p.to));
    v.push_back(rows_of(p.sequence->v, 0, p.to));
  }
  TestTensor kv = zero_tensor(m.cache(), {at.pages, 2, m.kv_heads, kPageTokens, kv_row(m.cache(), m.size)});
  std::fill(kv.bytes.begin(), kv.bytes.end(), uint8_t{0xff});  // NaN where nothing is written
  kv = runner.run("kv_write", {kv, concat(k), concat(v), at.slots})[0];
  std::vector<TestTensor> in{concat(q), kv, at.table, at.lengths, at.starts};
  if (m.sinks) {
    in.push_back(random_tensor(DType::F32, {m.heads}, 9, -2, 4));
    in.back().set(0, 120);  // takes nearly all of the weight
  }
  const Attrs attrs{{"scale", m.scale()}, {"window", m.window}, {"softcap", m.softcap}, {"chunk", m.chunk}};
  return runner.run("paged_attention", in, attrs)[0];
}

class CudaAttention : public testing::TestWithParam<Model> {};

TEST_P(CudaAttention, IsNearTheCpus) {
  const Model& m = GetParam();
  const OpRunner cuda = cuda_runner(Order::Shuffled), cpu(parse_isa("auto").value());
  const Sequence a = sequence(m, 300, 1), b = sequence(m, 70, 2), c = sequence(m, 1, 3);
  const std::vector<Part> parts{{&a, 299, 300}, {&b, 40, 70}, {&c, 0, 1}};
  const TestTensor got = step(cuda, m, parts), want = step(cpu, m, parts);
  const double abs = m.int8 ? 3e-2 : m.dtype == DType::F32 ? 2e-6 : 8 * unit_roundoff(m.dtype);
  expect_close(got, to_doubles(want), 4 * unit_roundoff(m.dtype), m.int8 && m.dtype == DType::F32 ? 2e-6 : abs,
               m.name());
}

TEST_P(CudaAttention, KeepsItsBits) {
  const Model& m = GetParam();
  const OpRunner cuda = cuda_runner(), shuffled = cuda_runner(Order::Shuffled),
                 backwards = cuda_runner(Order::Descending);
  const int64_t n = 270;  // over a border of pages and one of groups
  const Sequence a = sequence(m, n, 1), b = sequence(m, 40, 2);
  const TestTensor whole = step(cuda, m, {{&a, 200, n}});
  auto rows = [&](int64_t from, int64_t to) { return rows_of(whole, from - 200, to - from); };
  expect_same_bits(step(cuda, m, {{&a, 200, 241}}), rows(200, 241), m.name() + " a chunk");
  expect_same_bits(step(cuda, m, {{&a, 241, n}}), rows(241, n), m.name() + " the next chunk");
  for (int64_t t : {int64_t{200}, int64_t{255}, int64_t{256}, n - 1})
    expect_same_bits(step(shuffled, m, {{&a, t, t + 1}}), rows(t, t + 1), fmt::format("{} token {}", m.name(), t));
  const TestTensor company = step(backwards, m, {{&b, 0, 40}, {&a, 266, n}, {&b, 39, 40}}, 7);
  expect_same_bits(rows_of(company, 40, n - 266), rows(266, n), m.name() + " in company");
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaAttention,
    testing::Values(Model{}, Model{DType::F16, false, 3, 1, 22}, Model{DType::BF16, false, 8, 1, 128},
                    Model{DType::BF16, false, 2, 2, 64, 100}, Model{DType::F16, false, 2, 1, 200},
                    Model{DType::F32, false, 4, 2, 48, 33}, Model{DType::BF16, true, 4, 2, 64},
                    Model{DType::F32, true, 2, 1, 32}, Model{DType::BF16, false, 4, 2, 64, 40, 1.5},
                    Model{DType::F16, false, 4, 1, 64, 0, 0, true}, Model{DType::BF16, true, 2, 1, 32, 0, 2, true},
                    Model{DType::F32, false, 4, 2, 32, 50, 1.5, true}, Model{.chunk = 215},
                    Model{.dtype = DType::F32, .chunk = 100}, Model{.dtype = DType::F16, .kv_heads = 1, .chunk = 268}),
    [](const auto& i) {
      std::string name = i.param.name();
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

}  // namespace
}  // namespace reprise::simt::attention_test
