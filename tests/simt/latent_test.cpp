// CUDA's latent attention on the SIMT executor: a head's product has the bits of linear on this device; attention is
// near the CPU's, and has the same bits alone, in company, in chunks and with other pages.
#include <gtest/gtest.h>

#include "backends/paged_step.h"
#include "simt/both_devices.h"

namespace reprise::simt::latent_test {
namespace {

using namespace cpu;

TEST(CudaPerHeadMatmul, IsALinearForEveryHead) {
  struct Case {
    int64_t tokens, heads, k, n;
  };
  for (const DType t : kDTypes)
    for (const Case& c : {Case{1, 3, 12, 20}, Case{7, 2, 33, 64}, Case{67, 2, 40, 70}, Case{3, 5, 64, 40}}) {
      const std::string what = fmt::format("{} T {} H {} K {} N {}", dtype_name(t), c.tokens, c.heads, c.k, c.n);
      const TestTensor x = random_tensor(t, {c.tokens, c.heads, c.k}, 1), w = random_tensor(t, {c.heads, c.n, c.k}, 2);
      const TestTensor got = on_cuda().run("per_head_matmul", {x, w})[0];
      expect_same_bits(on_cuda(Order::Descending).run("per_head_matmul", {x, w})[0], got, what + " lanes backwards");
      for (int64_t h = 0; h < c.heads; ++h) {
        TestTensor rows = zero_tensor(t, {c.tokens, c.k}), part = zero_tensor(t, {c.tokens, c.n});
        for (int64_t i = 0; i < c.tokens; ++i) {
          for (int64_t j = 0; j < c.k; ++j) rows.set(i * c.k + j, x.get((i * c.heads + h) * c.k + j));
          for (int64_t j = 0; j < c.n; ++j) part.set(i * c.n + j, got.get((i * c.heads + h) * c.n + j));
        }
        TestTensor matrix = rows_of(w, h, 1);
        matrix.type.shape = constant_shape({c.n, c.k});
        expect_same_bits(on_cuda().run("linear", {rows, matrix})[0], part, what);
      }
    }
}

TEST(CudaPerHeadMatmul, ComputesTheRowsOfTheList) {
  for (const DType t : kDTypes)
    for (const std::vector<double>& list : {std::vector<double>{0, 1, 4, -1, -1, -1, -1},
                                            {-1, -1, -1, -1, -1, -1, -1},
                                            {0, 1, 2, 3, 4, 5, 6},
                                            {6, -1, 3, -1, -1, -1, -1}}) {
      const TestTensor x = random_tensor(t, {7, 3, 19}, 1), w = random_tensor(t, {3, 70, 19}, 2);
      const TestTensor all = on_cuda().run("per_head_matmul", {x, w})[0];
      const TestTensor got = on_cuda(Order::Shuffled).run("per_head_matmul_rows", {x, indices(list), w})[0];
      const auto end = std::find(list.begin(), list.end(), -1.0);
      for (int64_t i = 0; i < 7; ++i) {
        const bool listed = std::find(list.begin(), end, static_cast<double>(i)) != end;
        expect_same_bits(rows_of(got, i, 1), listed ? rows_of(all, i, 1) : zero_tensor(t, {1, 3, 70}),
                         fmt::format("{} row {}", dtype_name(t), i));
      }
    }
}

struct LatentModel {
  DType dtype = DType::BF16;
  int64_t heads = 3, latent = 20, rope = 8;
  double scale() const { return 1 / std::sqrt(static_cast<double>(latent)); }
  std::string name() const { return fmt::format("{} H {} C {} D {}", dtype_name(dtype), heads, latent, rope); }
};

// Queries and cache rows of every token of a sequence.
struct LatentSequence {
  TestTensor q, q_rope, latents, ropes;
  LatentSequence(const LatentModel& m, int64_t length, uint32_t seed)
      : q(random_tensor(m.dtype, {length, m.heads, m.latent}, seed, -2, 2)),
        q_rope(random_tensor(m.dtype, {length, m.heads, m.rope}, seed + 1000, -2, 2)),
        latents(random_tensor(m.dtype, {length, m.latent}, seed + 2000, -2, 2)),
        ropes(random_tensor(m.dtype, {length, m.rope}, seed + 3000, -2, 2)) {}
};

// Tokens [from, to) are this step's; those before are in the cache.
struct LatentPart {
  const LatentSequence* sequence;
  int64_t from, to;
};

TestTensor attend(const OpRunner& runner, const LatentModel& m, const std::vector<LatentPart>& parts,
                  uint32_t pages = 1) {
  const PagedStep at(parts, pages);
  std::vector<TestTensor> q, q_rope, latents, ropes;
  for (const LatentPart& p : parts) {
    q.push_back(rows_of(p.sequence->q, p.from, p.to - p.from));
    q_rope.push_back(rows_of(p.sequence->q_rope, p.from, p.to - p.from));
    latents.push_back(rows_of(p.sequence->latents, 0, p.to));
    ropes.push_back(rows_of(p.sequence->ropes, 0, p.to));
  }
  const auto cache = [&](int64_t width, const std::vector<TestTensor>& rows) {
    TestTensor empty = zero_tensor(m.dtype, {at.pages, kPageTokens, width});
    std::fill(empty.bytes.begin(), empty.bytes.end(), uint8_t{0xff});  // NaN where nothing is written
    return on_cpu().run("row_write", {empty, concat(rows), at.slots})[0];
  };
  return runner.run(
      "latent_attention",
      {concat(q), concat(q_rope), cache(m.latent, latents), cache(m.rope, ropes), at.table, at.lengths, at.starts},
      {{"scale", m.scale()}})[0];
}

class CudaLatent : public testing::TestWithParam<LatentModel> {};

TEST_P(CudaLatent, IsNearTheCpus) {
  const LatentModel& m = GetParam();
  const LatentSequence a(m, 300, 1), b(m, 70, 2), c(m, 1, 3);
  const std::vector<LatentPart> parts{{&a, 299, 300}, {&b, 64, 70}, {&c, 0, 1}};
  expect_close(attend(on_cuda(Order::Shuffled), m, parts), to_doubles(attend(on_cpu(), m, parts)),
               4 * unit_roundoff(m.dtype), m.dtype == DType::F32 ? 4e-6 : 8 * unit_roundoff(m.dtype), m.name());
}

TEST_P(CudaLatent, KeepsItsBits) {
  const LatentModel& m = GetParam();
  const int64_t n = 262, first = 250;  // over a border of groups
  const LatentSequence a(m, n, 1), b(m, 40, 2);
  const TestTensor whole = attend(on_cuda(), m, {{&a, first, n}});
  auto rows = [&](int64_t from, int64_t to) { return rows_of(whole, from - first, to - from); };
  expect_same_bits(attend(on_cuda(), m, {{&a, first, 253}}), rows(first, 253), m.name() + " a chunk");
  expect_same_bits(attend(on_cuda(), m, {{&a, 253, n}}, 3), rows(253, n), m.name() + " the next chunk");
  for (int64_t t : {int64_t{255}, int64_t{256}, n - 1})
    expect_same_bits(attend(on_cuda(Order::Shuffled), m, {{&a, t, t + 1}}), rows(t, t + 1),
                     fmt::format("{} token {}", m.name(), t));
  const TestTensor company = attend(on_cuda(Order::Descending), m, {{&b, 36, 40}, {&a, 260, n}, {&b, 39, 40}}, 7);
  expect_same_bits(rows_of(company, 4, n - 260), rows(260, n), m.name() + " in company");
}

// Blocks of 32 rows where their shared memory is there, and of 16.
TEST(CudaLatentAttention, KeepsItsBitsWithLessSharedMemory) {
  constexpr size_t kOfH100 = 227 << 10;
  static const OpRunner large = cuda_runner(Order::Ascending, kOfH100);
  const LatentModel m{DType::BF16, 64, 512, 64};
  const LatentSequence a(m, 10, 1), b(m, 2, 2);
  const std::vector<LatentPart> parts{{&a, 0, 10}, {&b, 1, 2}};
  const TestTensor got = attend(on_cuda(), m, parts);
  expect_same_bits(got, attend(large, m, parts));
  expect_same_bits(rows_of(got, 9, 1), attend(on_cuda(), m, {{&a, 9, 10}}));
}

// More sequences than the workspace has states for: then groups are not split.
TEST(CudaLatentAttention, KeepsItsBitsWithoutRoomToSplit) {
  const LatentModel m{DType::BF16, 64, 8, 8};
  const LatentSequence a(m, 3, 1), b(m, 2, 2);
  std::vector<LatentPart> parts(260, {&b, 1, 2});
  parts[200] = {&a, 1, 3};
  const TestTensor got = attend(on_cuda(), m, parts);
  expect_same_bits(rows_of(got, 200, 2), attend(on_cuda(), m, {{&a, 1, 3}}));
  expect_same_bits(rows_of(got, 260, 1), attend(on_cuda(), m, {{&b, 1, 2}}));
}

INSTANTIATE_TEST_SUITE_P(All, CudaLatent,
                         testing::Values(LatentModel{}, LatentModel{DType::F16, 1, 17, 6},
                                         LatentModel{DType::BF16, 5, 136, 24}, LatentModel{DType::F16, 8, 512, 64},
                                         LatentModel{DType::BF16, 60, 40, 8}, LatentModel{DType::F32, 3, 36, 12}),
                         [](const auto& i) {
                           std::string name = i.param.name();
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace reprise::simt::latent_test
