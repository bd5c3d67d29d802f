// kv_write and paged_attention against double precision and against themselves: the bits rule over batches, chunks,
// page places, pool sizes, and caches full of NaN where nothing was written.
#include <gtest/gtest.h>

#include "backends/cpu/kernels/kv_layout.h"
#include "backends/paged_step.h"
#include "backends/reference.h"

namespace reprise::cpu::attention_test {
namespace {

// Of queries, keys and values, and of the cache.
struct Format {
  DType dtype = DType::F32;
  bool int8 = false;
  DType cache() const { return int8 ? DType::I8 : dtype; }
  std::string name() const { return fmt::format("{}{}", dtype_name(dtype), int8 ? " in i8" : ""); }
};

struct Model {
  Format format;
  int64_t heads = 4, kv_heads = 2, size = 64, window = 0;
  double cap = 0;
  std::vector<double> sinks = {};  // of every head, or none
  int64_t chunk = 0;

  std::string name() const {
    return fmt::format("{} H {} G {} D {} window {} chunk {} cap {}{}", format.name(), heads, kv_heads, size, window,
                       chunk, cap, sinks.empty() ? "" : " with sinks");
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
};

// Queries, keys and values of every token of a sequence.
struct Sequence {
  TestTensor q, k, v;
  int64_t length() const { return q.type.shape[0].factor; }
};

Sequence make_sequence(const Model& m, int64_t length, uint32_t seed) {
  return {random_tensor(m.format.dtype, {length, m.heads, m.size}, seed, -3, 3),
          random_tensor(m.format.dtype, {length, m.kv_heads, m.size}, seed + 1000, -3, 3),
          random_tensor(m.format.dtype, {length, m.kv_heads, m.size}, seed + 2000, -1, 1)};
}

// Tokens [from, to) of a sequence are this step's; those before are in the cache.
struct Part {
  const Sequence* sequence;
  int64_t from, to;
};

struct StepOptions {
  int threads = 1;
  uint32_t page_seed = 1;     // which physical pages
  int64_t extra_columns = 2;  // padding of the page table, never to be read
  int dot = -1;               // whether bf16 uses vdpbf16ps where it can; -1: what is faster here
};

TestTensor empty_rows(const Model& m) { return zero_tensor(m.format.dtype, {0, m.heads, m.size}); }

// Writes keys and values of every part into a fresh cache of NaN and attends with the tokens of this step.
TestTensor step(const OpRunner& runner, const Model& m, const std::vector<Part>& parts,
                const StepOptions& options = {}) {
  const PagedStep at(parts, options.page_seed, options.extra_columns);
  std::vector<TestTensor> q{empty_rows(m)}, k, v;
  for (const Part& p : parts) {
    q.push_back(rows_of(p.sequence->q, p.from, p.to - p.from));
    k.push_back(rows_of(p.sequence->k, 0, p.to));
    v.push_back(rows_of(p.sequence->v, 0, p.to));
  }
  TestTensor kv =
      zero_tensor(m.format.cache(), {at.pages, 2, m.kv_heads, kPageTokens, kv_row(m.format.cache(), m.size)});
  std::fill(kv.bytes.begin(), kv.bytes.end(), uint8_t{0xff});
  if (at.slots.size() > 0)
    kv = runner.run("kv_write", {kv, concat(k), concat(v), at.slots}, {}, {.threads = options.threads})[0];
  RunOptions run{.threads = options.threads};
  if (options.dot >= 0) run.adjust = [dot = options.dot](LaunchArgs& args) { args.way = dot; };
  std::vector<TestTensor> in{concat(q), kv, at.table, at.lengths, at.starts};
  if (!m.sinks.empty()) in.push_back(tensor_of(DType::F32, {m.heads}, m.sinks));
  const Attrs attrs{{"scale", m.scale()}, {"window", m.window}, {"softcap", m.cap}, {"chunk", m.chunk}};
  return runner.run("paged_attention", in, attrs, run)[0];
}

// A row as an int8 cache holds it.
struct Int8Row {
  explicit Int8Row(const std::vector<double>& row) {
    float top = 0;
    for (double x : row)
      if (std::abs(x) > top) top = static_cast<float>(std::abs(x));
    scale = top / 127.0f;
    for (double x : row) {
      const float quotient = static_cast<float>(x) / scale;
      values.push_back(static_cast<int8_t>(std::isnan(quotient) ? 0 : std::nearbyint(quotient)));
    }
  }
  float scale;
  std::vector<int8_t> values;
};

std::vector<double> row_at(const TestTensor& t, int64_t row, int64_t size) {
  std::vector<double> out;
  for (int64_t d = 0; d < size; ++d) out.push_back(t.get(row * size + d));
  return out;
}

// What attention finds in the cache.
TestTensor as_cached(const Model& m, const TestTensor& t) {
  if (!m.format.int8) return t;
  TestTensor out = t;
  out.type.dtype = DType::F32;
  out.bytes.resize(static_cast<size_t>(t.size()) * 4);
  for (int64_t row = 0; row < t.size() / m.size; ++row) {
    const Int8Row r(row_at(t, row, m.size));
    for (int64_t d = 0; d < m.size; ++d)
      out.set(row * m.size + d, static_cast<double>(r.scale) * r.values[static_cast<size_t>(d)]);
  }
  return out;
}

// One head of keys or values as [tokens][size].
std::vector<double> head_of(const TestTensor& t, int64_t head, int64_t heads, int64_t size) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.type.shape[0].factor; ++i)
    for (int64_t d = 0; d < size; ++d) out.push_back(t.get((i * heads + head) * size + d));
  return out;
}

std::vector<double> expected(const Model& m, const std::vector<Part>& parts) {
  std::vector<double> out;
  for (auto& p : parts) {
    std::vector<std::vector<double>> k, v;
    const TestTensor keys = as_cached(m, p.sequence->k), values = as_cached(m, p.sequence->v);
    for (int64_t g = 0; g < m.kv_heads; ++g) {
      k.push_back(head_of(keys, g, m.kv_heads, m.size));
      v.push_back(head_of(values, g, m.kv_heads, m.size));
    }
    for (int64_t t = p.from; t < p.to; ++t)
      for (int64_t h = 0; h < m.heads; ++h) {
        const TestTensor row = rows_of(p.sequence->q, t, 1);
        std::vector<double> q;
        for (int64_t d = 0; d < m.size; ++d) q.push_back(row.get(h * m.size + d));
        const size_t g = static_cast<size_t>(h / (m.heads / m.kv_heads));
        const int64_t first = m.chunk > 0 ? t - t % m.chunk : m.window > 0 ? std::max<int64_t>(0, t + 1 - m.window) : 0;
        const double sink = m.sinks.empty() ? -INFINITY : m.sinks[static_cast<size_t>(h)];
        const auto o = reference::attend(q, k[g], v[g], static_cast<size_t>(first), static_cast<size_t>(t + 1),
                                         m.scale(), m.cap, sink);
        out.insert(out.end(), o.begin(), o.end());
      }
  }
  return out;
}

// |error| allowed for values in [-1, 1]: rounding of the result, and of the weights where they are bf16.
double tolerance(DType t) { return t == DType::BF16 ? 6e-3 : t == DType::F16 ? 6e-4 : 1e-5; }

// The reference is slow, so every instruction set is compared with one run of it.
void expect_matches(const Model& m, const std::vector<Part>& parts, const StepOptions& options = {}) {
  const std::vector<double> want = expected(m, parts);
  for (Isa isa : isas_with_tiles())
    expect_close(step(OpRunner(isa), m, parts, options), want, 0, tolerance(m.format.dtype),
                 fmt::format("{} {}, {} threads", isa_name(isa), m.name(), options.threads));
}

constexpr Format kFormats[] = {{DType::F32, false}, {DType::BF16, false}, {DType::F16, false},
                               {DType::F32, true},  {DType::BF16, true},  {DType::F16, true}};

// The first tokens of a page take up its front, keys in whole runs, so that no more of a page need be read or written.
TEST(KvLayout, TokensTakeUpTheFrontOfABlock) {
  for (bool pairs : {false, true})
    for (int64_t size : {2, 6, 64, 128})
      for (bool values : {false, true}) {
        const int64_t unit = !values ? kKeyRun : pairs ? 2 : 1;
        std::vector<bool> used(static_cast<size_t>(kKvTokens * size));
        for (int64_t token = 0; token < kKvTokens; ++token)
          for (int64_t d = 0; d < size; ++d) {
            const int64_t at = values ? value_offset(token, d, size, pairs) : key_offset(token, d, size, pairs);
            ASSERT_GE(at, token / unit * unit * size);
            ASSERT_LT(at, (token / unit + 1) * unit * size);
            ASSERT_FALSE(used[static_cast<size_t>(at)]);
            used[static_cast<size_t>(at)] = true;
          }
      }
  // A vector of keys holds neighbouring tokens, and of bf16 both numbers of a pair.
  EXPECT_EQ(key_offset(17, 0, 64, true), 16 * 64 + 2);
  EXPECT_EQ(key_offset(16, 3, 64, true), 16 * 64 + 33);
  EXPECT_EQ(key_offset(17, 3, 64, false), 16 * 64 + 3 * 16 + 1);
}

TEST(KvWrite, PutsEveryElementInItsPlace) {
  for (Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    for (DType t : kDTypes)
      for (int64_t size : {2, 6, 22, 64, 80}) {
        const int64_t heads = 3, tokens = 150;
        const TestTensor k = random_tensor(t, {tokens, heads, size}, 1), v = random_tensor(t, {tokens, heads, size}, 2);
        const TestTensor kv = random_tensor(t, {4, 2, heads, kPageTokens, size}, 3);
        // A run over a page border that begins within a pair, a skipped token, single places.
        std::vector<double> slots;
        for (int64_t i = 0; i < tokens; ++i)
          slots.push_back(static_cast<double>(i < 100 ? 311 + i : i == 100 ? -1 : (i * 37) % 256));
        TestTensor want = kv;
        for (int64_t i = 0; i < tokens; ++i) {
          const int64_t slot = static_cast<int64_t>(slots[static_cast<size_t>(i)]);
          if (slot < 0) continue;
          for (int64_t h = 0; h < heads; ++h)
            for (int64_t d = 0; d < size; ++d) {
              const int64_t page = slot / kPageTokens, place = slot % kPageTokens, from = (i * heads + h) * size + d;
              const bool pairs = t == DType::BF16;
              want.set(kv_block(page, false, h, heads, size) + key_offset(place, d, size, pairs), k.get(from));
              want.set(kv_block(page, true, h, heads, size) + value_offset(place, d, size, pairs), v.get(from));
            }
        }
        for (int threads : {1, 2, 3}) {
          const auto got =
              runner.run("kv_write", {kv, k, v, tensor_of(DType::I32, {tokens}, slots)}, {}, {.threads = threads});
          expect_same_bits(got[0], want,
                           fmt::format("{} {} size {} threads {}", isa_name(isa), dtype_name(t), size, threads));
        }
        if (HasFatalFailure()) return;
      }
  }
}

// Rows of zeros, infinities, NaN and subnormals among others; a run over a page border, a hole, single places.
TEST(KvWrite, GivesEveryInt8RowItsOwnScale) {
  for (Isa isa : supported_isas()) {
    const OpRunner runner(isa);
    for (DType t : kDTypes)
      for (int64_t size : {2, 6, 24, 64, 80, 256}) {
        const int64_t heads = 3, tokens = 60, row = kv_row(DType::I8, size);
        TestTensor k = random_tensor(t, {tokens, heads, size}, 1, -4, 4);
        TestTensor v = random_tensor(t, {tokens, heads, size}, 2, -1e-3, 1e-3);
        for (int64_t d = 0; d < size; ++d) {
          k.set(7 * size + d, 0);
          v.set(8 * size + d, d % 2 ? INFINITY : 1);
          v.set(9 * size + d, NAN);
          k.set(10 * size + d, 1e-40 * static_cast<double>(d + 1));
          k.set(11 * size + d, d % 2 ? 12 : -12);
        }
        k.set(13 * size, NAN);
        const TestTensor kv = random_tensor(DType::I8, {4, 2, heads, kPageTokens, row}, 3, -128, 128);
        std::vector<double> slots;
        for (int64_t i = 0; i < tokens; ++i)
          slots.push_back(static_cast<double>(i < 40 ? 370 + i : i == 40 ? -1 : (i * 37) % 256));
        TestTensor want = kv;
        for (int64_t i = 0; i < tokens; ++i) {
          const int64_t slot = static_cast<int64_t>(slots[static_cast<size_t>(i)]);
          if (slot < 0) continue;
          const int64_t page = slot / kPageTokens, place = slot % kPageTokens;
          for (int64_t h = 0; h < heads; ++h)
            for (bool values : {false, true}) {
              const Int8Row r(row_at(values ? v : k, i * heads + h, size));
              const int64_t block = kv_block(page, values, h, heads, row);
              for (int64_t d = 0; d < size; ++d)
                want.set(block + (values ? value_offset(place, d, size, false) : key_offset(place, d, size, false)),
                         r.values[static_cast<size_t>(d)]);
              std::memcpy(want.bytes.data() + block + kv_scales_offset(size) + place * 4, &r.scale, 4);
            }
        }
        for (int threads : {1, 2, 3}) {
          const auto got =
              runner.run("kv_write", {kv, k, v, tensor_of(DType::I32, {tokens}, slots)}, {}, {.threads = threads});
          expect_same_bits(got[0], want,
                           fmt::format("{} {} size {} threads {}", isa_name(isa), dtype_name(t), size, threads));
        }
        if (HasFatalFailure()) return;
      }
  }
}

TEST(PagedAttention, MatchesTheReferenceAtPageBorders) {
  for (const Format& t : kFormats) {
    const Model m{t, 4, 2, 24, 0};
    for (int64_t n : {0, 1, 2, 127, 128, 129, 255, 256, 257, 500}) {
      const Sequence s = make_sequence(m, std::max(n, int64_t{1}), 10);
      expect_matches(m, {{&s, n < 300 ? 0 : n - 40, n}}, {.threads = 2});
      if (n > 0) expect_matches(m, {{&s, n - 1, n}}, {.threads = 2});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PagedAttention, MatchesTheReferenceForEveryHeadShape) {
  struct Heads {
    int64_t heads, kv_heads, size;
  };
  for (const Format& t : kFormats)
    for (auto [heads, kv_heads, size] : {Heads{2, 2, 64},
                                         {9, 3, 64},
                                         {4, 1, 64},
                                         {8, 1, 64},
                                         {14, 2, 64},
                                         {2, 2, 2},
                                         {6, 2, 24},
                                         {4, 1, 80},
                                         {6, 3, 96},
                                         {8, 1, 128},
                                         {3, 3, 128},
                                         {3, 1, 256},
                                         {2, 2, 256}}) {
      const Model m{t, heads, kv_heads, size, 0};
      const Sequence a = make_sequence(m, 133, 20), b = make_sequence(m, 70, 21);
      expect_matches(m, {{&a, 126, 133}, {&b, 69, 70}}, {.threads = 2});
      if (HasFatalFailure()) return;
    }
}

TEST(PagedAttention, WindowsHideOldKeys) {
  for (const Format& t : kFormats)
    for (int64_t window : {1, 2, 24, 127, 128, 129, 300}) {
      const Model m{t, 6, 2, 32, window};
      const Sequence a = make_sequence(m, 400, 30), b = make_sequence(m, 131, 31);
      expect_matches(m, {{&a, 370, 400}, {&b, 130, 131}}, {.threads = 3});
      if (HasFatalFailure()) return;
    }
}

TEST(PagedAttention, ChunksHideTheKeysOfOthers) {
  for (const Format& t : kFormats)
    for (int64_t chunk : {1, 48, 128, 200, 256, 500}) {
      Model m{t, 6, 2, 32};
      m.chunk = chunk;
      const Sequence a = make_sequence(m, 403, 30), b = make_sequence(m, 131, 31);
      expect_matches(m, {{&a, 370, 403}, {&b, 128, 129}}, {.threads = 3});
      if (HasFatalFailure()) return;
    }
}

TEST(PagedAttention, RefusesAChunkBesideAWindow) {
  const OpRunner runner(Isa::Baseline);
  const Model m{kFormats[0]};
  const TensorType q{DType::F32, {Dim(2), Dim(4), Dim(64)}},
      kv{DType::F32, {Dim(3), Dim(2), Dim(2), Dim(128), Dim(64)}}, index{DType::I32, {Dim(1)}},
      table{DType::I32, {Dim(1), Dim(2)}}, starts{DType::I32, {Dim(2)}};
  const auto refuses = [&](int64_t window, int64_t chunk) {
    return !runner
                .choose("paged_attention", {q, kv, table, index, starts},
                        {{"scale", m.scale()}, {"window", window}, {"chunk", chunk}})
                .is_ok();
  };
  EXPECT_FALSE(refuses(0, 64));
  EXPECT_FALSE(refuses(64, 0));
  EXPECT_TRUE(refuses(64, 64));
  EXPECT_TRUE(refuses(0, -1));
}

// A batch of everything: whole prompts, chunks with a prefix in the cache, decoding sequences, one without tokens.
struct Mixed {
  explicit Mixed(const Model& m) {
    for (int64_t n : {500, 129, 257, 1, 384, 128, 160})
      sequences.push_back(make_sequence(m, n, 40 + static_cast<uint32_t>(n)));
    parts = {{&sequences[0], 300, 500}, {&sequences[1], 128, 129}, {&sequences[2], 100, 257}, {&sequences[3], 0, 1},
             {&sequences[4], 383, 384}, {&sequences[5], 64, 64},   {&sequences[6], 0, 160}};
  }
  std::vector<Sequence> sequences;
  std::vector<Part> parts;
};

TEST(PagedAttention, CapsScores) {
  for (const Format& f : kFormats)
    for (double cap : {0.5, 7.0}) {
      Model m{f};
      m.cap = cap;
      m.window = cap < 1 ? 100 : 0;
      const Sequence s = make_sequence(m, 150, 19);
      expect_matches(m, {{&s, 0, 150}}, {.threads = 2});
      expect_matches(m, {{&s, 149, 150}});
    }
}

// Heads whose sink takes a little, most or nearly all of the weights. Every form of the kernel: whole prompts, chunks,
// steps of one token, items that threads cut at pages.
TEST(PagedAttention, SinksTakeTheirShareInEveryForm) {
  for (const Format& f : kFormats)
    for (int64_t window : {0, 24}) {
      Model m{f, 6, 2, 40, window};
      m.sinks = {0, 3, -2, 12, 1, 6};
      m.cap = window > 0 ? 5 : 0;
      const Sequence prompt = make_sequence(m, 150, 21), long_one = make_sequence(m, 700, 22);
      const std::vector<Part> parts{{&prompt, 0, 150}, {&long_one, 699, 700}, {&long_one, 500, 530}};
      const std::vector<double> want = expected(m, parts);
      for (Isa isa : isas_with_tiles()) {
        const OpRunner runner(isa);
        const std::string what = fmt::format("{} {}", isa_name(isa), m.name());
        const TestTensor all = step(runner, m, parts);
        expect_close(all, want, 0, tolerance(f.dtype), what);
        for (int threads : {2, 3, 7})
          expect_same_bits(step(runner, m, parts, {.threads = threads}), all, what + " threads");
        expect_same_bits(step(runner, m, {parts[1]}, {.threads = 5}), rows_of(all, 150, 1), what + " alone");
        for (auto [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {100, 129}, {129, 130}})
          expect_same_bits(step(runner, m, {{&prompt, from, to}}, {.threads = 2}), rows_of(all, from, to - from),
                           what + " chunk");
        if (HasFatalFailure()) return;
      }
    }
}

// A sink far below all scores changes no bit, and one far above them leaves nothing.
TEST(PagedAttention, SinksFarFromTheScoresOverflowNothing) {
  for (const Format& f : kFormats) {
    const Model plain{f, 4, 2, 24};
    Model low = plain, high = plain;
    low.sinks = {-1e4, -1e30, -300, -1e4};
    high.sinks = {1e4, 1e30, 300, 1e4};
    const Sequence s = make_sequence(plain, 140, 23);
    for (Isa isa : isas_with_tiles()) {
      const OpRunner runner(isa);
      const TestTensor want = step(runner, plain, {{&s, 0, 140}}), none = step(runner, high, {{&s, 0, 140}});
      expect_same_bits(step(runner, low, {{&s, 0, 140}}), want, low.name());
      for (int64_t i = 0; i < none.size(); ++i) ASSERT_EQ(none.get(i), 0) << isa_name(isa) << " " << f.name();
    }
  }
}

TEST(PagedAttention, MixedBatchMatchesAndRowsDoNotDependOnIt) {
  for (const Format& t : kFormats)
    for (auto [window, chunk] : {std::pair<int64_t, int64_t>{0, 0}, {100, 0}, {0, 150}}) {
      Model m{t, 6, 2, 32, window};
      m.chunk = chunk;
      const Mixed batch(m);
      const std::vector<double> want = expected(m, batch.parts);
      for (Isa isa : isas_with_tiles()) {
        const OpRunner runner(isa);
        const std::string what = fmt::format("{} {}", isa_name(isa), m.name());
        const TestTensor all = step(runner, m, batch.parts);
        expect_close(all, want, 0, tolerance(t.dtype), what);
        for (int threads : {2, 3, 7})
          expect_same_bits(step(runner, m, batch.parts, {.threads = threads}), all, what + " threads");
        expect_same_bits(step(runner, m, batch.parts, {.threads = 2, .page_seed = 99, .extra_columns = 0}), all,
                         what + " pages");
        int64_t row = 0;
        for (auto& p : batch.parts) {
          const TestTensor alone = step(runner, m, {p}, {.threads = 2, .page_seed = 5});
          expect_same_bits(alone, rows_of(all, row, p.to - p.from), what + " alone");
          row += p.to - p.from;
        }
        if (HasFatalFailure()) return;
      }
    }
}

TEST(PagedAttention, ChunksAndDecodingGiveTheBitsOfTheWhole) {
  for (Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const Format& t : kFormats)
      for (auto [heads, kv_heads] : {std::pair<int64_t, int64_t>{3, 3}, {9, 3}, {8, 2}, {8, 1}})
        for (auto [window, chunk] : {std::pair<int64_t, int64_t>{0, 0}, {77, 0}, {0, 100}}) {
          Model m{t, heads, kv_heads, 16, window};
          m.chunk = chunk;
          const Sequence s = make_sequence(m, 390, 50);
          const std::string what = fmt::format("{} {}", isa_name(isa), m.name());
          const TestTensor whole = step(runner, m, {{&s, 0, 390}});
          for (auto [from, to] : {std::pair<int64_t, int64_t>{0, 1},
                                  {0, 100},
                                  {100, 129},
                                  {129, 130},
                                  {129, 256},
                                  {256, 257},
                                  {255, 256},
                                  {127, 128},
                                  {256, 389},
                                  {389, 390},
                                  {385, 390}})
            for (int threads : {1, 2})
              expect_same_bits(
                  step(runner, m, {{&s, from, to}}, {.threads = threads, .page_seed = static_cast<uint32_t>(to)}),
                  rows_of(whole, from, to - from), fmt::format("{} tokens {} to {}", what, from, to));
          if (HasFatalFailure()) return;
        }
  }
}

// With subnormals, infinities, weights that vanish, and spans that begin and end within a pair.
TEST(PagedAttention, TheBf16InstructionAndItsEmulationAgree) {
  for (Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (int64_t size : {2, 24, 64, 80, 128})
      for (int64_t window : {0, 45}) {
        const Model m{{DType::BF16}, 6, 2, size, window};
        Sequence s = make_sequence(m, 301, 55);
        for (int64_t i = 0; i < s.k.size(); i += 7) s.k.set(i, s.k.get(i) * 0x1p-128);
        for (int64_t i = 0; i < s.v.size(); i += 5) s.v.set(i, s.v.get(i) * 0x1p-127);
        for (int64_t i = 0; i < s.q.size(); i += 11) s.q.set(i, s.q.get(i) * 60);
        for (int64_t token : {33, 200})
          for (int64_t i = 0; i < m.kv_heads * size; i += 3) s.v.set(token * m.kv_heads * size + i, INFINITY);
        const TestTensor want = step(runner, m, {{&s, 0, 301}}, {.dot = 1});
        const std::string what = fmt::format("{} {}", isa_name(isa), m.name());
        expect_same_bits(step(runner, m, {{&s, 0, 301}}, {.threads = 2, .dot = 0}), want, what);
        for (int dot : {0, 1})
          for (auto [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {3, 7}, {7, 61}, {128, 129}, {255, 301}})
            expect_same_bits(step(runner, m, {{&s, from, to}}, {.threads = 3, .dot = dot}),
                             rows_of(want, from, to - from),
                             fmt::format("{} tokens {} to {}, dot {}", what, from, to, dot));
        if (HasFatalFailure()) return;
      }
  }
}

TEST(PagedAttention, LongContextsSplitOverPagesGiveTheSameBits) {
  for (Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const Format& t : kFormats)
      for (int64_t kv_heads : {1, 3}) {
        const Model m{t, 3 * kv_heads, kv_heads, 64, 0};
        const Sequence a = make_sequence(m, 1100, 60), b = make_sequence(m, 300, 61);
        const std::vector<Part> parts{{&a, 1099, 1100}, {&b, 299, 300}};
        const TestTensor one = step(runner, m, parts);
        expect_close(one, expected(m, parts), 0, tolerance(t.dtype), m.name());
        for (int threads : {2, 3, 4, 5, 16})
          expect_same_bits(step(runner, m, parts, {.threads = threads}), one,
                           fmt::format("{} {} threads {}", isa_name(isa), m.name(), threads));
        if (HasFatalFailure()) return;
      }
  }
}

// Infinite values in tokens that a row may not see, before its window and behind its position, do not reach it.
TEST(PagedAttention, HiddenInfinitiesDoNotLeak) {
  for (Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (const Format& t : kFormats)
      for (int64_t size : {24, 64}) {
        const Model m{t, 4, 2, size, 40};
        const Sequence clean = make_sequence(m, 200, 70);
        const TestTensor want = step(runner, m, {{&clean, 0, 200}});
        Sequence dirty = clean;
        for (int64_t token : {60, 61, 150, 199})
          for (int64_t i = 0; i < m.kv_heads * size; ++i) {
            dirty.v.set(token * m.kv_heads * size + i, i % 2 ? INFINITY : NAN);
            dirty.k.set(token * m.kv_heads * size + i, i % 3 ? -INFINITY : NAN);
          }
        const TestTensor got = step(runner, m, {{&dirty, 0, 200}}, {.threads = 2});
        for (auto [from, to] : {std::pair<int64_t, int64_t>{0, 60}, {101, 150}, {190, 199}})
          expect_same_bits(rows_of(got, from, to - from), rows_of(want, from, to - from),
                           fmt::format("{} {} rows {} to {}", isa_name(isa), m.name(), from, to));
        EXPECT_TRUE(std::isnan(got.get(60 * m.heads * size)));
        if (HasFatalFailure()) return;
      }
  }
}

TEST(PagedAttention, RowsWithoutKeysAreZero) {
  for (Isa isa : isas_with_tiles()) {
    const OpRunner runner(isa);
    for (bool int8 : {false, true}) {
      const Model m{{DType::F32, int8}};
      const TestTensor q = random_tensor(m.format.dtype, {2, m.heads, m.size}, 80);
      TestTensor kv = zero_tensor(m.format.cache(), {1, 2, m.kv_heads, kPageTokens, kv_row(m.format.cache(), m.size)});
      std::fill(kv.bytes.begin(), kv.bytes.end(), uint8_t{0xff});
      const TestTensor got = runner.run("paged_attention",
                                        {q, kv, tensor_of(DType::I32, {1, 1}, {-1}), tensor_of(DType::I32, {1}, {0}),
                                         tensor_of(DType::I32, {2}, {0, 2})},
                                        {{"scale", 1.0}}, {.threads = 2})[0];
      for (int64_t i = 0; i < got.size(); ++i) ASSERT_EQ(got.get(i), 0) << isa_name(isa);
    }
  }
}

TEST(PagedAttention, RefusesWhatItCannotDo) {
  const OpRunner runner(Isa::Baseline);
  auto message = [&](DType q, DType kv, int64_t size) {
    const auto r = runner.choose("paged_attention",
                                 {{q, {Dim(1), Dim(2), Dim(size)}},
                                  {kv, {Dim(1), Dim(2), Dim(1), Dim(kPageTokens), Dim(kv_row(kv, size))}},
                                  {DType::I32, {Dim(1), Dim(1)}},
                                  {DType::I32, {Dim(1)}},
                                  {DType::I32, {Dim(2)}}},
                                 {{"scale", 1.0}});
    return r.is_ok() ? "" : r.status().message();
  };
  EXPECT_EQ(message(DType::BF16, DType::BF16, 64), "");
  EXPECT_NE(message(DType::BF16, DType::BF16, 7).find("even head sizes"), std::string::npos);
  EXPECT_NE(message(DType::BF16, DType::BF16, 258).find("even head sizes"), std::string::npos);
  EXPECT_NE(message(DType::F32, DType::BF16, 64).find("takes f32"), std::string::npos);
  EXPECT_EQ(message(DType::BF16, DType::I8, 64), "");
  EXPECT_EQ(message(DType::F32, DType::I8, 256), "");
  EXPECT_NE(message(DType::BF16, DType::I8, 7).find("not 7 of"), std::string::npos);
  EXPECT_NE(message(DType::BF16, DType::I8, 258).find("not 258 of"), std::string::npos);
}

}  // namespace
}  // namespace reprise::cpu::attention_test
