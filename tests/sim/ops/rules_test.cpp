// Each rule of the operators: what it refuses, in which versions, and what it lets pass beside that.
#include <algorithm>
#include <fstream>
#include <sstream>

#include "ascend/ops/tensor.h"
#include "sim/ops/attention_cases.h"
#include "sim/rule_watch.h"

namespace sim_test {
namespace {

using ascend_sim::Cann;
using ascend_sim::Rule;

const bool watched = watch_rules("sim_ops");

class Rules : public OpsTest {
 protected:
  // The call must be refused in just the versions that the rule holds for, by that rule.
  static void in_its_versions(Rule rule, const std::function<aclnnStatus()>& call,
                              std::initializer_list<Cann> versions = {Cann::V8_1, Cann::V8_5, Cann::V9_1}) {
    const ascend_sim::RuleText& text = text_of(rule);
    for (const Cann version : versions) {
      bench().machine.cann = version;
      EXPECT_EQ(call(), holds(rule, version) ? text.code : 0) << name_of(version) << ": " << bench().error;
      if (!holds(rule, version)) continue;
      EXPECT_NE(bench().error.find("rule " + std::string(text.id) + ": "), std::string::npos) << bench().error;
    }
    bench().machine.cann = ascend_sim::kNewest;
  }
};

constexpr auto kSince85 = {Cann::V8_5, Cann::V9_1};

// Requests over pages, checked by phase 1 only.
struct Asked {
  aclDataType dtype = kBf16;
  const char* layout = "TND";
  Dims lengths{2}, kv_lengths{300};
  int64_t heads = 4, kv_heads = 1, width = 128, value_width = 128, rope = 0, page = 128, blocks = 4;
  bool causal = false, fractal = false, paged = true;
  bool band = false;
  int64_t before = 0, after = 0;
  Dims sinks = {};  // their shape
  aclDataType sink_type = kBf16;
};

aclnnStatus attend(const Asked& a) {
  const bool joined = std::string(a.layout) == "TND";
  const int64_t requests = static_cast<int64_t>(a.lengths.size());
  const int64_t total = joined ? ends(a.lengths).back() : requests, rows = joined ? 1 : a.lengths[0];
  const auto of_query = [&](int64_t width) {
    return joined ? Dims{total, a.heads, width} : Dims{requests, rows, a.heads, width};
  };
  const auto of_pool = [&](int64_t width) {
    return !a.paged    ? Dims{ends(a.kv_lengths).back(), a.kv_heads, width}
           : a.fractal ? Dims{a.blocks, a.kv_heads, width / 16, a.page, 16}
                       : Dims{a.blocks, a.page, a.kv_heads * width};
  };
  const auto mask = a.causal || a.band ? shared_mask() : nullptr;
  Array query(a.dtype, of_query(a.width)), out(a.dtype, of_query(a.value_width)), key(a.dtype, of_pool(a.width)),
      value(a.dtype, of_pool(a.value_width)), table(kInt32, {requests, a.blocks}), q_rope(a.dtype, of_query(a.rope)),
      k_rope(a.dtype, of_pool(a.rope));
  Problem p;
  p.heads = a.heads, p.kv_heads = a.kv_heads, p.width = a.width;
  Call c{};
  c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.layout = a.layout;
  if (a.paged) c.table = &table, c.page = a.page;
  if (a.rope > 0) c.q_rope = &q_rope, c.k_rope = &k_rope;
  if (a.causal) c.mask = mask.get(), c.sparse = 3;
  if (a.band) c.mask = mask.get(), c.sparse = 4, c.before = a.before, c.after = a.after;
  Array sinks(a.sink_type, a.sinks.empty() ? Dims{1} : a.sinks);
  if (!a.sinks.empty()) c.sinks = &sinks;
  if (joined) c.lengths = ends(a.lengths);
  c.kv_lengths = a.paged ? a.kv_lengths : ends(a.kv_lengths);
  return fused(p, c, true);
}

TEST_F(Rules, EachNamesItsTest) { expect_rules_name_tests("sim_ops"); }

TEST_F(Rules, ThePageShowsTheTable) {
  std::ifstream file(REPRISE_SOURCE_DIR "/docs/ascend-simulator.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string table = ascend_sim::rules_page();
  EXPECT_NE(page.str().find(table), std::string::npos) << "docs/ascend-simulator.md needs this table:\n" << table;
  std::istringstream lines(page.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
}

TEST_F(Rules, YoungOperatorsAreAbsent) {
  Array x(kFloat, {1, 8}), y(kFloat, {1, 2}), index(kInt32, {1, 2});
  in_its_versions(Rule::SymbolOf85, [&] {
    return REFUSED(aclnnMoeGatingTopK, x, nullptr, 2, 1, 1, 0, 0, 0, false, 1.0, 0.0, y, index, nullptr);
  });
}

// Sequences of the delta rule with heads of 8 numbers.
struct DeltaAsked {
  int64_t heads = 2, key_heads = 1, key = 8, states = 16;
  std::vector<double> lengths{1, 8};
};

aclnnStatus delta_rule(const DeltaAsked& a, bool runs = false) {
  int64_t rows = 0;
  for (const double n : a.lengths) rows += static_cast<int64_t>(n);
  const auto sequences = static_cast<int64_t>(a.lengths.size());
  Array keys(kBf16, {rows, a.key_heads, a.key}, numbers(rows * a.key_heads * a.key, 1)),
      values(kBf16, {rows, a.heads, 8}, numbers(rows * a.heads * 8, 2)),
      beta(kBf16, {rows, a.heads}, numbers(rows * a.heads, 3)),
      state(kFloat, {a.states, a.heads, 8, a.key}, numbers(a.states * a.heads * 8 * a.key, 4)),
      count(kInt32, {sequences}, a.lengths), slots(kInt32, {rows}, std::vector<double>(static_cast<size_t>(rows), 1)),
      out(kBf16, {rows, a.heads, 8});
  if (runs)
    return RUN_OP(aclnnRecurrentGatedDeltaRule, keys, keys, values, beta, state, count, slots, nullptr, nullptr,
                  nullptr, 1.0f, out);
  return REFUSED(aclnnRecurrentGatedDeltaRule, keys, keys, values, beta, state, count, slots, nullptr, nullptr, nullptr,
                 1.0f, out);
}

TEST_F(Rules, TheDeltaRuleIsYoung) {
  in_its_versions(Rule::SymbolOf91, [] { return delta_rule({}); });
}

TEST_F(Rules, SizesOfTheDeltaRule) {
  for (const DeltaAsked& a : {DeltaAsked{.heads = 3, .key_heads = 2}, DeltaAsked{.heads = 257}, DeltaAsked{.key = 513}})
    in_its_versions(Rule::DeltaSizes, [&] { return delta_rule(a); }, {Cann::V9_1});
  EXPECT_EQ(delta_rule({.heads = 256}), 0) << bench().error;
  EXPECT_EQ(delta_rule({.key = 512}), 0) << bench().error;
}

TEST_F(Rules, StatesOfTheDeltaRule) {
  in_its_versions(Rule::DeltaStates, [] { return delta_rule({.states = 8}); }, {Cann::V9_1});
  EXPECT_EQ(delta_rule({.states = 9}), 0) << bench().error;
}

TEST_F(Rules, RowsOfTheDeltaRule) {
  for (const std::vector<double>& lengths : {std::vector<double>{2, 9}, {3, 0}}) {
    EXPECT_EQ(delta_rule({.lengths = lengths}, true), 361001);
    EXPECT_NE(bench().error.find("rule delta-rows: "), std::string::npos) << bench().error;
  }
  EXPECT_EQ(delta_rule({}, true), 0) << bench().error;
}

TEST_F(Rules, JoinedTokensHadNoPages) {
  in_its_versions(Rule::AttentionJoinedPages, [] { return attend({}); });
  Asked unpaged;
  unpaged.paged = false;
  bench().machine.cann = Cann::V8_1;
  EXPECT_EQ(attend(unpaged), 0) << bench().error;
}

TEST_F(Rules, JoinedTokensWereBf16) {
  Asked half;
  half.dtype = kHalf, half.paged = false;
  in_its_versions(Rule::AttentionJoinedBf16, [&] { return attend(half); });
  Asked latent;
  latent.dtype = kHalf, latent.heads = 32, latent.width = latent.value_width = 512, latent.rope = 64;
  bench().machine.cann = Cann::V8_5;
  EXPECT_EQ(attend(latent), 0) << bench().error;
}

TEST_F(Rules, JoinedTokensHadThreeWidths) {
  for (const int64_t width : {80, 96, 256}) {
    Asked a;
    a.width = a.value_width = width;
    in_its_versions(
        Rule::AttentionJoinedWidth, [&] { return attend(a); }, kSince85);
  }
  bench().machine.cann = Cann::V8_5;
  Asked a;
  a.width = a.value_width = 64;
  EXPECT_EQ(attend(a), 0) << bench().error;
  a.width = 192, a.value_width = 128;
  EXPECT_EQ(attend(a), 0) << bench().error;
  Asked step;
  step.layout = "BSND", step.width = step.value_width = 80, step.lengths = {1};
  EXPECT_EQ(attend(step), 0) << "steps have other limits: " << bench().error;
}

TEST_F(Rules, JoinedTokensEndAtAMillion) {
  Asked a;
  a.heads = 1, a.width = a.value_width = 1, a.lengths = {1048577};
  in_its_versions(Rule::AttentionJoinedTokens, [&] { return attend(a); }, {Cann::V9_1});
  a.lengths = {1048576};
  EXPECT_EQ(attend(a), 0) << bench().error;
}

TEST_F(Rules, SixtyFourHeadsShareOne) {
  Asked a;
  a.layout = "BSND", a.heads = 65, a.lengths = {1};
  in_its_versions(Rule::AttentionRatio, [&] { return attend(a); });
  a.heads = 64;
  bench().machine.cann = Cann::V8_5;
  EXPECT_EQ(attend(a), 0) << bench().error;
}

TEST_F(Rules, CausalNeedsAsManyKeys) {
  Asked a;
  a.layout = "BSND", a.causal = true, a.lengths = {4}, a.kv_lengths = {3};
  in_its_versions(Rule::AttentionCausalLength, [&] { return attend(a); });
  a.kv_lengths = {4};
  EXPECT_EQ(attend(a), 0) << bench().error;
  a.layout = "TND", a.kv_lengths = {3};
  EXPECT_EQ(attend(a), 0) << "9.1 does not look at joined tokens: " << bench().error;
  bench().machine.cann = Cann::V8_5;
  EXPECT_EQ(attend(a), kLimit);
}

TEST_F(Rules, BandsOfJoinedTokens) {
  Asked a;
  a.band = true, a.before = 3, a.after = -4;
  in_its_versions(
      Rule::AttentionBand, [&] { return attend(a); }, kSince85);
  a.after = -3;
  EXPECT_EQ(attend(a), 0) << bench().error;
  a.after = 0, a.width = a.value_width = 192;
  in_its_versions(
      Rule::AttentionBandWidth, [&] { return attend(a); }, kSince85);
  a.width = a.value_width = 64;
  bench().machine.cann = Cann::V8_5;
  EXPECT_EQ(attend(a), 0) << bench().error;
}

TEST_F(Rules, SinksOfHeads) {
  Asked a;
  a.sinks = {4};
  EXPECT_EQ(attend(a), 0) << bench().error;
  bench().machine.cann = Cann::V8_1;
  EXPECT_EQ(attend(a), kAbsent) << "V4 is younger: " << bench().error;
  bench().machine.cann = Cann::V8_5;
  EXPECT_EQ(attend(a), 0) << bench().error;
  Asked other = a;
  other.sink_type = kFloat;
  in_its_versions(
      Rule::AttentionSinkType, [&] { return attend(other); }, kSince85);
  other = a, other.layout = "BSND", other.lengths = {1};
  in_its_versions(
      Rule::AttentionSinkJoined, [&] { return attend(other); }, kSince85);
  other = a, other.width = other.value_width = 192;
  in_its_versions(
      Rule::AttentionSinkWidth, [&] { return attend(other); }, kSince85);
  other = a, other.sinks = {3};
  EXPECT_EQ(attend(other), kBad) << bench().error;
}

Asked latent(const char* layout, int64_t heads, int64_t page) {
  Asked a;
  a.layout = layout, a.heads = heads, a.width = a.value_width = 512, a.rope = 64, a.page = page;
  a.kv_lengths = {2 * page};
  if (std::string(layout) == "BSND") a.lengths = {1};
  return a;
}

TEST_F(Rules, AbsorbedHeadsOfJoinedTokens) {
  in_its_versions(Rule::LatentHeads, [] { return attend(latent("TND", 16, 128)); });
  bench().machine.cann = Cann::V8_5;
  EXPECT_EQ(attend(latent("TND", 64, 128)), 0) << bench().error;
  EXPECT_EQ(attend(latent("BSND", 16, 128)), 0) << bench().error;
}

TEST_F(Rules, PagesOfAbsorbedHeads) {
  in_its_versions(Rule::LatentPages, [] { return attend(latent("BSND", 16, 64)); });
  bench().machine.cann = Cann::V8_5;
  EXPECT_EQ(attend(latent("BSND", 16, 16)), 0) << bench().error;
  Asked fractal = latent("BSND", 16, 16);
  fractal.fractal = true;
  EXPECT_EQ(attend(fractal), kLimit);
}

TEST_F(Rules, SizesOfLatentRows) {
  const auto write = [](int64_t width, int64_t rope) {
    Array kv(kBf16, {2, 1, 1, width + rope}), gamma(kBf16, {width}), angles(kBf16, {2, 1, 1, rope}), slots(kInt64, {2});
    Array keys(kBf16, {1, 128, 1, rope}), latents(kBf16, {1, 128, 1, width}), k(kBf16, {2, 1, 1, rope}),
        c(kBf16, {2, 1, 1, width});
    char pages[] = "PA";
    return REFUSED(aclnnKvRmsNormRopeCache, kv, gamma, angles, angles, slots, keys, latents, nullptr, nullptr, nullptr,
                   nullptr, 1e-6, pages, false, k, c);
  };
  in_its_versions(
      Rule::LatentRowSizes, [&] { return write(256, 64); }, kSince85);
  in_its_versions(
      Rule::LatentRowSizes, [&] { return write(512, 32); }, kSince85);
  EXPECT_EQ(write(512, 64), 0) << bench().error;
}

TEST_F(Rules, RowsOfAbsorbedHeads) {
  Asked a = latent("TND", 32, 128);
  a.lengths = {17}, a.causal = true;
  in_its_versions(Rule::LatentRows, [&] { return attend(a); });
  a.lengths = {16};
  EXPECT_EQ(attend(a), 0) << bench().error;
}

// One grouped product of two experts, fractal where asked.
struct Grouped {
  aclDataType dtype = kInt8, out = kBf16, scale = kBf16;
  bool fractal = false, turned = false, bias = false;
  int64_t depth = 32, columns = 64;
};

std::unique_ptr<Array> stack(aclDataType dtype, int64_t depth, int64_t columns, bool turned) {
  const int64_t lane = dtype == kInt8 ? 32 : 16, experts = 2;
  const auto parts = [](int64_t value, int64_t by) { return (value + by - 1) / by; };
  const Dims storage = turned ? Dims{experts, parts(depth, lane), parts(columns, 16), 16, lane}
                              : Dims{experts, parts(columns, lane), parts(depth, 16), 16, lane};
  auto w = std::make_unique<Array>(dtype, Dims{ascend_sim::product(storage)});
  w->describe({experts, depth, columns}, turned ? Dims{depth * columns, 1, depth} : Dims{depth * columns, columns, 1},
              29, storage);
  return w;
}

aclnnStatus product(const Grouped& g) {
  const int64_t experts = 2, rows = 2;
  Array x(g.dtype, {rows, g.depth}), out(g.out, {rows, g.columns}), scale(g.scale, {experts, g.columns}),
      tokens(kFloat, {rows}), ends(kInt64, {experts}, {1, 2}), bias(kInt32, {experts, g.columns});
  auto weight = g.fractal ? stack(g.dtype, g.depth, g.columns, g.turned)
                          : std::make_unique<Array>(g.dtype, Dims{experts, g.depth, g.columns});
  const bool whole = g.dtype == kInt8;
  const List xs({&x}), weights({weight.get()}), scales({&scale}), steps({&tokens}), outs({&out}), biases({&bias});
  return REFUSED(aclnnGroupedMatmulV4, xs, weights, g.bias ? static_cast<aclTensorList*>(biases) : nullptr,
                 whole ? static_cast<aclTensorList*>(scales) : nullptr, nullptr, nullptr, nullptr,
                 whole ? static_cast<aclTensorList*>(steps) : nullptr, ends, nullptr, nullptr, nullptr, 2, 0, 0, 0,
                 outs, nullptr, nullptr);
}

TEST_F(Rules, GroupedScalesFitTheResult) {
  in_its_versions(Rule::GroupedScale, [] { return product({.out = kBf16, .scale = kFloat, .fractal = true}); });
  EXPECT_EQ(product({.out = kHalf, .scale = kBf16}), kBad);
  EXPECT_EQ(product({.out = kHalf, .scale = kFloat}), 0) << bench().error;
  EXPECT_EQ(product({.out = kBf16, .scale = kBf16, .fractal = true, .bias = true}), 0) << bench().error;
  EXPECT_EQ(product({.out = kBf16, .scale = kFloat, .fractal = true, .bias = true}), kBad);
}

TEST_F(Rules, FractalStacksAreWhole) {
  in_its_versions(Rule::GroupedFractalAlign, [] { return product({.fractal = true, .columns = 80}); });
  in_its_versions(Rule::GroupedFractalAlign, [] { return product({.fractal = true, .depth = 40}); });
  in_its_versions(Rule::GroupedFractalAlign, [] { return product({.fractal = true, .turned = true, .depth = 48}); });
  EXPECT_EQ(product({.fractal = true, .turned = true, .columns = 48}), 0) << bench().error;
  EXPECT_EQ(product({.dtype = kBf16, .fractal = true, .columns = 48}), 0) << bench().error;
  EXPECT_EQ(product({.dtype = kBf16, .fractal = true, .columns = 40}), kBad);
  EXPECT_EQ(product({.depth = 37, .columns = 41}), 0) << "rows may be any: " << bench().error;
}

TEST_F(Rules, RowsOfGroupedProducts) {
  in_its_versions(Rule::GroupedRows, [] { return product({.depth = 1, .columns = 65536}); });
  in_its_versions(Rule::GroupedRows, [] { return product({.depth = 65536, .columns = 1}); });
  EXPECT_EQ(product({.depth = 1, .columns = 65535}), 0) << bench().error;
}

TEST_F(Rules, TheViewOfTheGatedProduct) {
  Array x(kInt8, {2, 32}), scale(kFloat, {2, 64}), tokens(kFloat, {2}), ends(kInt64, {2}, {1, 2}), out(kInt8, {2, 32}),
      steps(kFloat, {2});
  const auto logical = stack(kInt8, 32, 64, false), blocks = stack(kInt8, 32, 64, false);
  const Dims shape{2, 2, 2, 16, 32};
  blocks->describe(shape, ascend_sim::packed_strides(shape), 29, shape);
  const auto gated = [&](const Array& w) {
    return REFUSED(aclnnGroupedMatmulSwigluQuant, x, w, nullptr, nullptr, scale, tokens, ends, out, steps, nullptr);
  };
  in_its_versions(Rule::GatedProductView, [&] { return gated(*logical); });
  EXPECT_EQ(gated(*blocks), 0) << bench().error;
  // Both ways see the same numbers.
  for (auto* w : {logical.get(), blocks.get()})
    for (size_t i = 0; i < w->memory().size(); ++i) w->memory()[i] = static_cast<char>(i * 7 % 11);
  x.set(numbers(64, 1, -9, 9)), scale.set(numbers(128, 2)), tokens.set({0.5, 2});
  ASSERT_EQ(
      RUN_OP(aclnnGroupedMatmulSwigluQuant, x, *blocks, nullptr, nullptr, scale, tokens, ends, out, steps, nullptr), 0);
  const auto seen = out.get_all();
  ASSERT_EQ(RUN_OP(aclnnGroupedMatmulSwigluQuantWeightNZ, x, *logical, nullptr, nullptr, scale, tokens, ends, out,
                   steps, nullptr),
            0);
  EXPECT_EQ(out.get_all(), seen);
  const auto named = [&](const Array& w) {
    return REFUSED(aclnnGroupedMatmulSwigluQuantWeightNZ, x, w, nullptr, nullptr, scale, tokens, ends, out, steps,
                   nullptr);
  };
  EXPECT_EQ(named(*logical), 0) << bench().error;
  EXPECT_EQ(named(*blocks), kBad);
  bench().machine.cann = Cann::V8_1;
  EXPECT_EQ(named(*logical), kAbsent);
}

// Rows of one rank of two for experts.
struct Sending {
  int64_t tokens = 3, width = 64, k = 2, experts = 4, room = 12;  // 3 tokens of each rank, 2 experts on each
  int64_t global = 0, mode = 0;
  aclDataType type = kBf16, scale = kFloat;
  Dims scales = {12};
};

aclnnStatus send(const Sending& s) {
  bench().seat = {0, 2};
  Array x(kBf16, {s.tokens, s.width}), chosen(kInt32, {s.tokens, s.k}), rows(s.type, {s.room, s.width}),
      assist(kInt32, {s.room * 128}), counts(kInt64, {s.experts / 2}), received(kInt32, {s.experts}),
      scales(s.scale, s.scales);
  return REFUSED(aclnnMoeDistributeDispatchV2, x, chosen, nullptr, nullptr, nullptr, "experts", 2, 0, s.experts, "", 0,
                 0, 0, 0, 0, s.mode, s.global, 0, nullptr, rows, s.mode == 2 ? scales.get() : nullptr, assist, counts,
                 received, nullptr, nullptr);
}

TEST_F(Rules, RowsForExpertsHaveLimits) {
  EXPECT_EQ(send({}), 0) << bench().error;
  in_its_versions(
      Rule::DispatchSizes, [] { return send({.width = 48}); }, kSince85);
  in_its_versions(
      Rule::DispatchSizes, [] { return send({.tokens = 257, .room = 1028}); }, kSince85);
  EXPECT_EQ(send({.tokens = 256, .room = 1024}), 0) << bench().error;
  in_its_versions(
      Rule::DispatchExperts, [] { return send({.experts = 5}); }, kSince85);
  in_its_versions(
      Rule::DispatchRoom, [] { return send({.room = 11}); }, kSince85);
  bench().machine.generation = 3;
  in_its_versions(
      Rule::DispatchSizes, [] { return send({.width = 64}); }, kSince85);
  EXPECT_EQ(send({.width = 1024}), 0) << bench().error;
  // Two windows of 512 tokens of each rank for 2 experts, of 16 KB and a head of 512 bytes each; 1 choice comes back.
  setenv("HCCL_BUFFSIZE", "48", 1);
  in_its_versions(
      Rule::DispatchBuffer, [] { return send({.tokens = 512, .width = 8192, .room = 2048}); }, kSince85);
  unsetenv("HCCL_BUFFSIZE");
  EXPECT_EQ(send({.tokens = 512, .width = 8192, .room = 2048}), 0) << bench().error;
  bench().machine.cann = Cann::V8_1;
  EXPECT_EQ(send({.width = 1024}), kAbsent);
}

TEST_F(Rules, RowsForExpertsMayBeInt8) {
  EXPECT_EQ(send({.mode = 2, .type = kInt8}), 0) << bench().error;
  in_its_versions(
      Rule::DispatchQuant, [] { return send({.mode = 1, .type = kInt8}); }, kSince85);
  in_its_versions(
      Rule::DispatchQuant, [] { return send({.mode = 2, .type = kBf16}); }, kSince85);
  in_its_versions(
      Rule::DispatchQuant, [] { return send({.mode = 2, .type = kInt8, .scale = kHalf}); }, kSince85);
  in_its_versions(
      Rule::DispatchQuant,
      [] {
        return send({.mode = 2, .type = kInt8, .scales = {12, 1}});
      },
      kSince85);
  in_its_versions(
      Rule::DispatchRoom, [] { return send({.mode = 2, .type = kInt8, .scales = {11}}); }, kSince85);
  // The windows of A3 have room for two bytes a number all the same.
  bench().machine.generation = 3;
  setenv("HCCL_BUFFSIZE", "48", 1);
  const Sending most{.tokens = 512, .width = 8192, .room = 2048, .mode = 2, .type = kInt8, .scales = {2048}};
  in_its_versions(
      Rule::DispatchBuffer, [&] { return send(most); }, kSince85);
  unsetenv("HCCL_BUFFSIZE");
  EXPECT_EQ(send(most), 0) << bench().error;
}

// The last of several rounds has fewer tokens than globalBS tells; there is room for as many as in the others.
TEST_F(Rules, RoundsMayHaveFewerTokens) {
  EXPECT_EQ(send({.room = 16, .global = 8}), 0) << bench().error;
  in_its_versions(
      Rule::DispatchRoom, [] { return send({.room = 15, .global = 8}); }, kSince85);
  EXPECT_EQ(send({.room = 16, .global = 4}), kLimit) << "3 tokens are more than 4 / 2";
  EXPECT_EQ(send({.room = 20, .global = 9}), kLimit) << "9 are no equal shares of 2 ranks";
}

TEST_F(Rules, GatesWereNotRenormalised) {
  Array x(kFloat, {1, 8}), y(kFloat, {1, 2}), index(kInt32, {1, 2});
  in_its_versions(
      Rule::GateRenorm,
      [&] { return REFUSED(aclnnMoeGatingTopK, x, nullptr, 2, 1, 1, 0, 1, 1, false, 1.0, 0.0, y, index, nullptr); },
      kSince85);
}

TEST_F(Rules, RowsOfSwigluFitTheBuffer) {
  const auto gate = [](aclDataType dtype, int64_t width) {
    Array x(dtype, {2, width}), out(kInt8, {2, width / 2}), scale(kFloat, {2}), weights(kFloat, {width});
    char mode[] = "dynamic";
    return REFUSED(aclnnDequantSwigluQuant, x, dtype == kInt32 ? weights.get() : nullptr, nullptr, nullptr, nullptr,
                   nullptr, nullptr, true, mode, out, scale);
  };
  in_its_versions(Rule::SwigluBuffer, [&] { return gate(kBf16, 9832); });
  EXPECT_EQ(gate(kBf16, 9828), 0) << bench().error;
  EXPECT_EQ(gate(kInt32, 4470), kLimit) << "weights of 4 bytes count once, rows ten times";
  EXPECT_EQ(gate(kInt32, 4466), 0) << bench().error;
}

TEST_F(Rules, NullValuesOfTheCache) {
  Array rows(kBf16, {2, 1, 16}), cache(kBf16, {2, 4, 1, 16}), slots(kInt32, {2}, {0, 1}), none(kBf16, {}),
      none_cache(kBf16, {}), stored(kBf16, {}), empty(kBf16, {0});
  for (Array* array : {&none, &none_cache}) array->describe({}, {}, ascend_sim::kNd, {});
  char mode[] = "Norm", blocks[] = "PA_NZ";
  const auto scatter = [&](aclTensor* value, aclTensor* value_cache) {
    return REFUSED(aclnnScatterPaKvCache, rows, cache, slots, value, value_cache, nullptr, nullptr, nullptr, mode,
                   nullptr, nullptr, nullptr);
  };
  in_its_versions(
      Rule::CacheValueNull, [&] { return scatter(nullptr, nullptr); }, kSince85);
  in_its_versions(
      Rule::CacheValueNull, [&] { return scatter(none, stored); }, kSince85);
  for (const Cann version : kSince85) {
    bench().machine.cann = version;
    EXPECT_EQ(scatter(none, none_cache), 0) << bench().error;
    EXPECT_EQ(scatter(empty, empty), kLimit) << "one dimension of no elements is not none";
    EXPECT_EQ(REFUSED(aclnnScatterPaKvCache, rows, cache, slots, none, none_cache, nullptr, nullptr, nullptr, blocks,
                      nullptr, nullptr, nullptr),
              kLimit);
  }
}

TEST_F(Rules, CacheWritersAreNotRepeated) {
  Array rows(kBf16, {2, 1, 16}), cache(kBf16, {2, 4, 1, 16}), slots(kInt32, {2}, {0, 1});
  const auto repeat = [&] {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnScatterPaKvCacheGetWorkspaceSize(rows, cache, slots, rows, cache, nullptr, nullptr, nullptr, nullptr,
                                                    nullptr, nullptr, nullptr, &size, &executor),
              0);
    const aclnnStatus status = aclSetAclOpExecutorRepeatable(executor);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
    return status;
  };
  in_its_versions(Rule::CacheNotRepeated, repeat, kSince85);
}

TEST_F(Rules, NoSlotTwice) {
  Array rows(kBf16, {2, 1, 16}, numbers(32, 1)), cache(kBf16, {2, 4, 1, 16}), twice(kInt32, {2}, {3, 3}),
      once(kInt32, {2}, {3, 4});
  char mode[] = "Norm";
  const auto scatter = [&](const Array& slots) {
    return RUN_OP(aclnnScatterPaKvCache, rows, cache, slots, rows, cache, nullptr, nullptr, nullptr, mode, nullptr,
                  nullptr, nullptr);
  };
  EXPECT_EQ(scatter(twice), 361001);
  EXPECT_NE(bench().error.find("slot 3"), std::string::npos) << bench().error;
  EXPECT_EQ(scatter(once), 0) << bench().error;
}

// Keys and values of one product: the operator reads their rows where they lie.
TEST_F(Rules, StridesOfTheCache) {
  const Dims page{2, 4, 1, 16};
  Array product(kBf16, {3, 1, 16}, {16, 16, 1}, 0, 3 * 48), slots(kInt32, {3}, {6, 1, 3});
  std::vector<double> all;
  for (int i = 0; i < 3 * 48; ++i) all.push_back(i);
  product.describe({3, 48}, {48, 1}, ascend_sim::kNd, {3 * 48});
  product.set(all);
  product.describe({3, 1, 16}, {16, 16, 1}, ascend_sim::kNd, {3 * 48});
  Array keys(kBf16, page, std::vector<double>(128, -1)), values(kBf16, page, std::vector<double>(128, -1));
  char mode[] = "Norm", apart[] = "Nct";
  const auto scatter = [&](const Dims& strides, const Dims& offsets) {
    const Ints by(strides), from(offsets);
    return RUN_OP(aclnnScatterPaKvCache, product, keys, slots, product, values, nullptr, nullptr, nullptr, mode, apart,
                  by, from);
  };
  in_its_versions(
      Rule::CacheStrides,
      [&] {
        return scatter({48}, {16, 32});
      },
      kSince85);
  ASSERT_EQ(scatter({48, 48}, {16, 32}), 0) << bench().error;
  EXPECT_EQ(bench().kernels.size(), 1u);
  const std::vector<double> k = keys.get_all(), v = values.get_all();
  const int64_t slot[] = {6, 1, 3};
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t i = 0; i < 16; ++i) {
      EXPECT_EQ(k[static_cast<size_t>(slot[t] * 16 + i)], static_cast<double>(t * 48 + 16 + i));
      EXPECT_EQ(v[static_cast<size_t>(slot[t] * 16 + i)], static_cast<double>(t * 48 + 32 + i));
    }
  EXPECT_EQ(k[0], -1);
}

TEST_F(Rules, StridesOfRotatedRows) {
  Array at(kInt64, {2}, {0, 1}), table(kBf16, {2, 32}, numbers(64, 1)), out(kBf16, {2, 32}), k_out(kBf16, {2, 32});
  const auto rotate = [&](const Dims& strides, int64_t offset) {
    Array rows(kBf16, {2, 32}, strides, offset, 256);
    rows.set(numbers(64, 2));
    return RUN_OP(aclnnRopeWithSinCosCache, at, rows, rows, table, nullptr, 32, true, out, k_out);
  };
  in_its_versions(Rule::RopeStrides, [&] { return rotate({100, 1}, 0); });
  EXPECT_EQ(rotate({96, 1}, 8), kLimit) << "rows begin at multiples of 32 bytes";
  EXPECT_EQ(rotate({96, 2}, 0), kLimit) << "rows have no gaps";
  ASSERT_EQ(rotate({32, 1}, 0), 0) << bench().error;
  const std::vector<double> packed = out.get_all();
  ASSERT_EQ(rotate({96, 1}, 64), 0) << bench().error;
  EXPECT_EQ(bench().kernels.size(), 1u) << "nothing is copied";
  EXPECT_EQ(out.get_all(), packed);
}

// Attention of sequences that lie one behind the other, of a row each; checked by phase 1 only.
aclnnStatus sequences(int64_t count, int64_t width) {
  Array x(kBf16, {count, 1, width}), y(kBf16, {count, 1, width}), most(kFloat, {count, 1, 8}),
      sum(kFloat, {count, 1, 8});
  Dims all;
  for (int64_t i = 1; i <= count; ++i) all.push_back(i);
  const Ints places(all);
  char layout[] = "TND";
  return REFUSED(aclnnFlashAttentionVarLenScore, x, x, x, nullptr, nullptr, nullptr, nullptr, nullptr, places, places,
                 1.0, 1.0, kFar, kFar, 1, layout, 0, 0, most, sum, nullptr, y);
}

TEST_F(Rules, HeadsOfSequences) {
  in_its_versions(Rule::VarlenHeads, [] { return sequences(1, 528); });
  EXPECT_EQ(sequences(1, 769), kBad);
  bench().machine.cann = Cann::V8_1;
  EXPECT_EQ(sequences(1, 512), 0) << bench().error;
}

TEST_F(Rules, NumbersOfSequences) {
  in_its_versions(Rule::VarlenSequences, [] { return sequences(2049, 16); });
  EXPECT_EQ(sequences(2048, 16), 0) << bench().error;
}

TEST_F(Rules, PhaseOneRefusesOnDemand) {
  Array x(kFloat, {2}, {1, 2}), y(kFloat, {2});
  ascend_sim::restart_refusals();
  bench().machine.refuses = "aclnnSin", bench().machine.refuses_at = 2;
  EXPECT_EQ(REFUSED(aclnnSin, x, y), 0);
  EXPECT_EQ(REFUSED(aclnnCos, x, y), 0);
  EXPECT_EQ(REFUSED(aclnnSin, x, y), kLimit);
  EXPECT_EQ(REFUSED(aclnnSin, x, y), 0);
  bench().machine.has_kernels = false;
  EXPECT_EQ(REFUSED(aclnnCos, x, y), 561112);
}

}  // namespace
}  // namespace sim_test
