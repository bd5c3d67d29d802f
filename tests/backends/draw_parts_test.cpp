// Tokens that ranks draw from their own columns of the logits are those of op `sample` on whole rows, with its
// log-probabilities: on every instruction set, for two to four ranks, whatever the Draw asks for. Rows that the ranks
// cannot decide are few, and known.
#include <gtest/gtest.h>

#include "backends/draw_cases.h"
#include "ops/draw_math.h"

namespace reprise::cpu::draw_parts_test {
namespace {

struct Columns {
  int64_t first, count;
};

// In whole blocks, one rank with more than another.
std::vector<Columns> cut(int64_t n, int64_t ranks) {
  const int64_t all = draw::blocks(n, draw::kBlock);
  std::vector<Columns> out;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t begin = std::min(n, all * r / ranks * draw::kBlock);
    out.push_back({begin, std::min(n, all * (r + 1) / ranks * draw::kBlock) - begin});
  }
  return out;
}

struct Drawn {
  std::vector<TestTensor> results;  // of sample_undecided
  std::vector<bool> undecided;      // by row
};

Drawn draw_over(const OpRunner& runner, int threads, int64_t ranks, int64_t most, const TestTensor& logits,
                const TestTensor& draws, const EditTensors& e) {
  const int64_t rows = logits.type.shape[0].factor, n = logits.type.shape[1].factor;
  const auto run = [&](const char* op, std::vector<TestTensor> in, Attrs attrs) {
    return runner.run(op, in, attrs, {.threads = threads})[0];
  };
  std::vector<TestTensor> own, edited, tops, sums, best;
  const std::vector<Columns> parts = cut(n, ranks);
  for (const Columns& c : parts) {
    own.push_back(columns_of(logits, c.first, c.count));
    edited.push_back(run("mask_own_logits", {own.back(), e.edits, e.words}, {{"first", c.first}}));
    tops.push_back(run("draw_tops", {own.back(), draws, edited.back()}, {}));
  }
  const TestTensor top = side_by_side(tops);
  for (size_t r = 0; r < parts.size(); ++r)
    sums.push_back(run("draw_sums", {own[r], draws, top, edited[r]}, {{"of", n}}));
  const TestTensor sum = side_by_side(sums);
  for (size_t r = 0; r < parts.size(); ++r)
    best.push_back(
        run("draw_best", {own[r], draws, top, sum, edited[r]}, {{"first", parts[r].first}, {"of", n}, {"most", most}}));
  const TestTensor merged = run("merge_draws", {draws, top, sum, side_by_side(best)}, {{"of", n}});
  // As gather_undecided packs them; what is no row of those is poison.
  TestTensor gathered = zero_tensor(DType::F32, {rows, n});
  for (int64_t i = 0; i < gathered.size(); ++i) gathered.set(i, NAN);
  Drawn out;
  int64_t place = 0;
  for (int64_t r = 0; r < rows; ++r) {
    out.undecided.push_back(merged.get(r) == kUndecidedToken);
    if (out.undecided.back())
      std::memcpy(gathered.as<float>() + place++ * n, logits.as<float>() + r * n,
                  static_cast<size_t>(n) * sizeof(float));
  }
  out.results = runner.run("sample_undecided", {gathered, draws, merged, e.edits, e.words}, {}, {.threads = threads});
  return out;
}

std::vector<TestTensor> draw_whole(const OpRunner& runner, const TestTensor& logits, const TestTensor& draws,
                                   const EditTensors& e) {
  const TestTensor edited = runner.run("mask_logits", {logits, e.edits, e.words}, {}, {})[0];
  return runner.run("sample", {logits, draws, edited}, {}, {});
}

void expect_same(const std::vector<TestTensor>& got, const std::vector<TestTensor>& want, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) expect_same_bits(got[i], want[i], fmt::format("{}, result {}", what, i));
}

EditTensors no_edits() { return staged({EditCase{}}); }

constexpr int64_t kMostSent = 1024;

// Every kind of Draw, with and without log-probabilities; some rows are drawn from what edits have made of them.
TEST(DrawParts, AreTheTokensOfWholeRows) {
  for (const int64_t n : {1024, 2100, 5003}) {
    const int64_t rows = 24;
    const TestTensor logits = logits_of(rows, n, static_cast<uint32_t>(n) + 1);
    const std::vector<EditCase> cases = edit_cases(rows, n, 23);
    const EditTensors e = staged(cases);
    for (const bool logprobs : {false, true}) {
      std::vector<Draw> draws = draws_for(rows, 77);
      for (Draw& d : draws)
        if (!logprobs) d.logprobs = -1;
      for (size_t i = 0; i < cases.size(); ++i)
        draws[static_cast<size_t>(cases[i].row)].edited = static_cast<int32_t>(i) + 1;
      for (const Isa isa : supported_isas()) {
        const OpRunner runner(isa);
        const auto want = draw_whole(runner, logits, draws_of(draws), e);
        for (const int64_t ranks : {2, 3, 4}) {
          const std::string what = fmt::format("{} columns over {} on {}", n, ranks, isa_name(isa));
          const Drawn got =
              draw_over(runner, 1 + static_cast<int>(ranks % 3), ranks, kMostSent, logits, draws_of(draws), e);
          expect_same(got.results, want, what);
          // Of these a share of nearly all tokens may be of more than are sent.
          for (int64_t r = 0; r < rows; ++r) {
            const bool asked = draws[static_cast<size_t>(r)].logprobs >= 0;
            if (asked || r % 8 != 6) {
              EXPECT_EQ(got.undecided[static_cast<size_t>(r)], asked) << what << ", row " << r;
            }
          }
        }
      }
    }
  }
}

// Many draws of one distribution, all of them decided without whole rows: where a sum rounds differently, or a
// candidate is out of its place, one of these is another token.
TEST(DrawParts, ManyDrawsOfEachKindAreDecided) {
  const int64_t rows = 600, n = 4097, ranks = 3;
  const TestTensor one = logits_of(1, n, 8);
  TestTensor logits = zero_tensor(DType::F32, {rows, n});
  std::vector<Draw> draws;
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(logits.as<float>() + r * n, one.as<float>(), static_cast<size_t>(n) * sizeof(float));
    Draw d{.scale = 0.8f, .seed = 5, .position = r};
    if (r % 5 == 1) d.top_p = 0.95f, d.scale = 1.25f;
    if (r % 5 == 2) d.top_k = 700;
    if (r % 5 == 3) d.min_p = 0.02f;
    if (r % 5 == 4) d.top_k = 40, d.top_p = 0.8f;
    draws.push_back(d);
  }
  const OpRunner runner(supported_isas().back());
  const Drawn got = draw_over(runner, 2, ranks, kMostSent, logits, draws_of(draws), no_edits());
  expect_same(got.results, draw_whole(runner, logits, draws_of(draws), no_edits()), "many");
  EXPECT_EQ(std::count(got.undecided.begin(), got.undecided.end(), true), 0);
}

// Where fewer are sent than may be drawn, those rows are gathered and no other.
TEST(DrawParts, RowsThatCandidatesDoNotDecideAreGathered) {
  const int64_t n = 2048;
  std::vector<Draw> draws;
  for (const int32_t k : {1, 2, 8, 9, 300}) draws.push_back({.scale = 1, .top_k = k, .seed = 3, .position = k});
  draws.push_back({.scale = 1, .top_p = 1e-6f, .seed = 3});     // one token
  draws.push_back({.scale = 0.01f, .top_p = 0.9f, .seed = 3});  // nearly all of them
  draws.push_back({.scale = 1, .seed = 3});                     // all
  draws.push_back({.scale = 0});
  const auto rows = static_cast<int64_t>(draws.size());
  const TestTensor logits = logits_of(rows, n, 2);
  const OpRunner runner(supported_isas().back());
  const Drawn got = draw_over(runner, 1, 2, 8, logits, draws_of(draws), no_edits());
  expect_same(got.results, draw_whole(runner, logits, draws_of(draws), no_edits()), "few sent");
  EXPECT_EQ(got.undecided[6], true);
  EXPECT_EQ(got.undecided[4], true);
  for (const size_t r : {0, 1, 2, 5, 7, 8}) EXPECT_EQ(got.undecided[r], false) << r;
}

// Of equal logits the smaller ids are kept, over the borders of ranks; a largest one that two ranks have is the
// first's.
TEST(DrawParts, TiesAreKeptInTheOrderOfIds) {
  const int64_t n = 1536, rows = 64;
  TestTensor logits = zero_tensor(DType::F32, {rows, n});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) logits.set(r * n + i, i < 512 ? (i % 2 == 0 ? -0.0 : -1.0) : 0.0);
  std::vector<Draw> draws;
  for (int64_t r = 0; r < rows; ++r)
    draws.push_back({.scale = r % 2 == 0 ? 0.0f : 1.0f, .top_k = 300, .seed = 9, .position = r});
  const OpRunner runner(supported_isas().back());
  const Drawn got = draw_over(runner, 1, 3, kMostSent, logits, draws_of(draws), no_edits());
  expect_same(got.results, draw_whole(runner, logits, draws_of(draws), no_edits()), "ties");
  EXPECT_EQ(got.results[0].get(0), 0);
  double largest = 0;
  for (int64_t r = 1; r < rows; r += 2) largest = std::max(largest, got.results[0].get(r));
  EXPECT_GE(largest, 512);  // 256 of the first rank's, and those of the next
  EXPECT_LT(largest, 512 + 44);
}

TEST(DrawParts, RowsWithoutANumberGiveNoToken) {
  const int64_t n = 1100;
  TestTensor logits = logits_of(5, n, 9);
  logits.set(0 * n + 1099, NAN);
  logits.set(1 * n + 40, INFINITY);
  for (int64_t i = 0; i < n; ++i) logits.set(2 * n + i, -INFINITY);
  for (int64_t i = 0; i < n; ++i)
    if (i != 1017) logits.set(3 * n + i, -INFINITY);
  const OpRunner runner(supported_isas().back());
  for (const Draw& d : {Draw{.scale = 1, .seed = 4}, Draw{.scale = 1, .top_p = 0.9f, .seed = 4},
                        Draw{.scale = 1, .top_k = 5, .seed = 4}, Draw{.scale = 0}, Draw{.scale = 1, .logprobs = 2}}) {
    const TestTensor draws = draws_of(std::vector<Draw>(5, d));
    const Drawn got = draw_over(runner, 2, 2, kMostSent, logits, draws, no_edits());
    expect_same(got.results, draw_whole(runner, logits, draws, no_edits()), "no numbers");
    for (const int64_t r : {0, 1, 2}) EXPECT_EQ(got.results[0].get(r), -1);
    EXPECT_EQ(got.results[0].get(3), 1017);
  }
}

}  // namespace
}  // namespace reprise::cpu::draw_parts_test
