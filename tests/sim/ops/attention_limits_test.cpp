// What attention refuses, and what it does with wrong pages.
#include "sim/ops/attention_cases.h"

namespace sim_test {
namespace {

class AttentionLimits : public OpsTest {};

// One call that is right, then each with one thing wrong.
TEST_F(AttentionLimits, Refusals) {
  struct Case {
    const char* what;
    int code;
    std::function<void(Problem&, Call&)> change;
  };
  const auto mask = shared_mask();
  Array small_mask(kBool, {1024, 1024}), float_mask(kFloat, {2048, 2048}), table3(kInt32, {3, 4}),
      long_table(kInt64, {2, 4});
  Array narrow_out(kBf16, {4, 4, 8}), rope(kBf16, {4, 4, 64});
  const std::vector<Case> cases = {
      {"right", 0, [](Problem&, Call&) {}},
      {"layout", kLimit, [](Problem&, Call& c) { c.layout = "SBH"; }},
      {"layout of another rank", kBad, [](Problem&, Call& c) { c.layout = "BSND"; }},
      {"lengths that end early", kLimit,
       [](Problem&, Call& c) {
         c.lengths = {1, 3};
       }},
      {"lengths that fall", kLimit,
       [](Problem&, Call& c) {
         c.lengths = {5, 4};
       }},
      {"no lengths", kLimit, [](Problem&, Call& c) { c.lengths.clear(); }},
      {"no key lengths", kLimit, [](Problem&, Call& c) { c.kv_lengths.clear(); }},
      {"more keys than pages", kLimit,
       [](Problem&, Call& c) {
         c.kv_lengths = {4 * 128 + 1, 3};
       }},
      {"page size beside the pool's", kLimit, [](Problem&, Call& c) { c.page = 64; }},
      {"innerPrecise", kLimit, [](Problem&, Call& c) { c.precise = 1; }},
      {"heads that do not divide", kLimit, [](Problem& p, Call&) { p.kv_heads = 3; }},
      {"another number of heads", kBad, [](Problem& p, Call&) { p.heads = 8; }},
      {"causal without a mask", kLimit, [](Problem&, Call& c) { c.sparse = 3; }},
      {"a mask without a mode", kLimit, [&](Problem&, Call& c) { c.mask = mask.get(); }},
      {"mode 2 of joined tokens", kLimit, [&](Problem&, Call& c) { c.mask = mask.get(), c.sparse = 2; }},
      {"a small mask", kLimit, [&](Problem&, Call& c) { c.mask = &small_mask, c.sparse = 3; }},
      {"a float mask", kBad, [&](Problem&, Call& c) { c.mask = &float_mask, c.sparse = 3; }},
      {"causal", 0, [&](Problem&, Call& c) { c.mask = mask.get(), c.sparse = 3; }},
      {"a table for three", kLimit, [&](Problem&, Call& c) { c.table = &table3; }},
      {"a table of int64", kBad, [&](Problem&, Call& c) { c.table = &long_table; }},
      {"a narrow output", kBad, [&](Problem&, Call& c) { c.out = &narrow_out; }},
      {"rope of the query alone", kBad, [&](Problem&, Call& c) { c.q_rope = &rope; }},
  };
  for (const Case& one : cases) {
    Problem p;
    Array query(kBf16, {4, 4, 16}), out(kBf16, {4, 4, 16}), key(kBf16, {8, 128, 32}), value(kBf16, {8, 128, 32});
    Array table(kInt32, {2, 4});
    Call c{};
    c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.table = &table, c.page = 128;
    c.lengths = {1, 4}, c.kv_lengths = {100, 300};
    one.change(p, c);
    EXPECT_EQ(fused(p, c, true), one.code) << one.what << ": " << bench().error;
  }
}

TEST_F(AttentionLimits, LimitsOfHeadsAndPages) {
  struct Shape {
    const char* layout;
    int64_t rows, width, value_width, page;
    Pool pool;
    int code;
  };
  const std::vector<Shape> shapes = {
      {"TND", 1, 256, 256, 128, Pool::Rows, 0},
      {"TND", 1, 272, 272, 128, Pool::Rows, kLimit},
      {"TND", 1, 192, 128, 128, Pool::Rows, 0},
      {"TND", 1, 192, 192, 128, Pool::Rows, 0},
      {"TND", 1, 128, 64, 128, Pool::Rows, kLimit},
      {"TND", 1, 64, 64, 256, Pool::Rows, kLimit},
      {"TND", 1, 64, 64, 48, Pool::Rows, 0},
      {"TND", 1, 64, 64, 24, Pool::Rows, kLimit},
      {"TND", 1, 64, 64, 128, Pool::HeadMajor, kLimit},
      {"BSND", 1, 64, 64, 128, Pool::HeadMajor, kLimit},
      {"BNSD", 1, 64, 64, 128, Pool::HeadMajor, 0},
      {"BSND", 1, 512, 512, 16, Pool::Rows, 0},
      {"BSND", 1, 528, 528, 16, Pool::Rows, kLimit},
      {"BSND", 1, 64, 64, 512, Pool::Rows, 0},
      {"BSND", 1, 64, 64, 528, Pool::Rows, kLimit},
      {"BSND", 2, 64, 64, 64, Pool::Rows, kLimit},
      {"BSND", 2, 64, 64, 1024, Pool::Rows, 0},
      {"BSND", 2, 64, 64, 1152, Pool::Rows, kLimit},
  };
  for (const Shape& s : shapes) {
    Problem p;
    p.kv_heads = 1, p.heads = 2;
    const std::string layout = s.layout;
    const auto of_query = [&](int64_t width) {
      return layout == "TND"    ? Dims{1, 2, width}
             : layout == "BSND" ? Dims{1, s.rows, 2, width}
                                : Dims{1, 2, s.rows, width};
    };
    const auto of_pool = [&](int64_t width) {
      return s.pool == Pool::Rows ? Dims{2, s.page, width} : Dims{2, 1, s.page, width};
    };
    Array query(kBf16, of_query(s.width)), out(kBf16, of_query(s.value_width)), key(kBf16, of_pool(s.width));
    Array value(kBf16, of_pool(s.value_width)), table(kInt32, {1, 2});
    Call c{};
    c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.table = &table, c.page = s.page,
    c.layout = s.layout;
    c.kv_lengths = {5};
    if (layout == "TND") c.lengths = {1};
    EXPECT_EQ(fused(p, c, true), s.code) << s.layout << " " << s.width << " " << s.value_width << " page " << s.page
                                         << ": " << bench().error;
  }
}

TEST_F(AttentionLimits, AWrongPageFaults) {
  Problem p;
  p.lengths = {1}, p.kv_lengths = {3};
  p.fill(kBf16, 51);
  const Paged keys = paged(kBf16, p, p.k, 16, 128, Pool::Rows, 1),
              values = paged(kBf16, p, p.v, 16, 128, Pool::Rows, 1);
  Array query(kBf16, {1, 1, 4, 16}, p.q[0]), out(kBf16, {1, 1, 4, 16}), table(kInt32, {1, 1}, {2});
  Call c{};
  c.query = &query, c.key = keys.pool.get(), c.value = values.pool.get(), c.out = &out, c.layout = "BSND";
  c.table = &table, c.page = 128, c.kv_lengths = p.kv_lengths;
  EXPECT_EQ(fused(p, c), 361001);
  EXPECT_NE(bench().error.find("page 2"), std::string::npos) << bench().error;
}

TEST_F(AttentionLimits, NullArguments) {
  Array query(kBf16, {1, 1, 4, 16}), pool(kBf16, {1, 128, 32}), out(kBf16, {1, 1, 4, 16}), none(kFloat, {0});
  const List value({&pool});
  char layout[] = "BSND";
  EXPECT_EQ(REFUSED(aclnnFusedInferAttentionScoreV2, query, nullptr, value, nullptr, nullptr, nullptr, nullptr, nullptr,
                    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                    nullptr, nullptr, nullptr, nullptr, nullptr, 4, 1.0, kFar, kFar, layout, 2, 0, 0, 128, 0, false, 0,
                    0, out, none),
            kNull);
  EXPECT_EQ(
      REFUSED(aclnnFusedInferAttentionScoreV2, query, value, value, out, nullptr, nullptr, nullptr, nullptr, nullptr,
              nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
              nullptr, nullptr, nullptr, nullptr, 4, 1.0, kFar, kFar, layout, 2, 0, 0, 128, 0, false, 0, 0, out, none),
      kLimit);  // a shift of positions
}

}  // namespace
}  // namespace sim_test
