// F46, F47: attention in every layout against torch's in double. Inputs, answers and the place of every number come
// from tests/data/attention_layouts.json (tools/golden/make_attention_layouts.py), which shares nothing with the
// simulator.
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/ops/attention_cases.h"

namespace sim_test {
namespace {

using nlohmann::json;
using Values = std::vector<double>;

const json& data() {
  static const json all = [] {
    std::ifstream in(std::string(REPRISE_SOURCE_DIR) + "/tests/data/attention_layouts.json");
    EXPECT_TRUE(in.is_open());
    return json::parse(in);
  }();
  return all;
}

int64_t size(const char* name) { return data().at("sizes").at(name); }

Values eighths(const json& integers) {
  Values out;
  for (const json& i : integers) out.push_back(i.get<double>() / 8);
  return out;
}

// [b][s][n][d] as a layout keeps it, and back.
Values placed(const Values& x, int64_t tokens, int64_t heads, const Dims& strides, bool back = false) {
  Values out(x.size());
  size_t at = 0;
  for (int64_t b = 0; b < size("B"); ++b)
    for (int64_t s = 0; s < tokens; ++s)
      for (int64_t n = 0; n < heads; ++n)
        for (int64_t d = 0; d < size("D"); ++d, ++at) {
          const auto place = static_cast<size_t>(b * strides[0] + s * strides[1] + n * strides[2] + d * strides[3]);
          back ? out[at] = x[place] : out[place] = x[at];
        }
  return out;
}

class AttentionLayouts : public OpsTest {
 protected:
  // Only heads and scale of it are used.
  Problem problem() {
    Problem p;
    p.heads = size("N"), p.kv_heads = size("G"), p.width = p.value_width = size("D");
    return p;
  }
  Values query_ = eighths(data().at("batch").at("query")), key_ = eighths(data().at("batch").at("key")),
         value_ = eighths(data().at("batch").at("value")), want_ = data().at("batch").at("out");
};

TEST_F(AttentionLayouts, EveryOneGivesTorchsAttention) {
  const int64_t tokens = size("S"), kv = size("KV"), heads = size("N"), groups = size("G");
  EXPECT_EQ(data().at("layouts").size(), 7u);
  for (const auto& [name, layout] : data().at("layouts").items()) {
    SCOPED_TRACE(name);
    const Dims q = layout.at("query").at("strides"), k = layout.at("key").at("strides"),
               o = layout.at("out").at("strides");
    for (const aclDataType dtype : {kHalf, kBf16}) {
      Array query(dtype, layout.at("query").at("shape"), placed(query_, tokens, heads, q)),
          key(dtype, layout.at("key").at("shape"), placed(key_, kv, groups, k)),
          value(dtype, layout.at("key").at("shape"), placed(value_, kv, groups, k)),
          out(dtype, layout.at("out").at("shape"));
      Call c{};
      c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.layout = name.c_str();
      if (name.find('T') != std::string::npos) c.lengths = {tokens, 2 * tokens}, c.kv_lengths = {kv, 2 * kv};
      ASSERT_EQ(fused(problem(), c), 0) << bench().error;
      expect_close(placed(out.get_all(), tokens, heads, o, true), want_, dtype, 1e-5, 2);
    }
  }
}

TEST_F(AttentionLayouts, EveryPoolOfPagesGivesTorchsAttention) {
  const int64_t tokens = size("S"), kv = size("KV"), heads = size("N"), groups = size("G"), page = size("page"),
                pages = size("pages"), width = size("D");
  const json& bnsd = data().at("layouts").at("BNSD");
  for (const auto& [name, pool] : data().at("pools").items()) {
    SCOPED_TRACE(name);
    const Dims shape = pool.at("shape"), strides = pool.at("strides"), q = bnsd.at("query").at("strides"),
               o = bnsd.at("out").at("strides");
    Values table, keys(static_cast<size_t>(size("blocks") * page * groups * width), std::nan("")), values = keys;
    for (int64_t i = 0; i < size("B") * pages; ++i) table.push_back(static_cast<double>(size("blocks") - 1 - i));
    size_t at = 0;
    for (int64_t b = 0; b < size("B"); ++b)
      for (int64_t s = 0; s < kv; ++s)
        for (int64_t n = 0; n < groups; ++n)
          for (int64_t d = 0; d < width; ++d, ++at) {
            const auto block = static_cast<int64_t>(table[static_cast<size_t>(b * pages + s / page)]);
            const auto place = static_cast<size_t>(block * strides[0] + s % page * strides[1] + n * strides[2] +
                                                   d / 16 * strides[3] + d % 16 * strides[4]);
            keys[place] = key_[at], values[place] = value_[at];
          }
    Array query(kBf16, bnsd.at("query").at("shape"), placed(query_, tokens, heads, q)),
        out(kBf16, bnsd.at("out").at("shape")), key(kBf16, shape, keys), value(kBf16, shape, values),
        block_table(kInt32, {size("B"), pages}, table);
    Call c{};
    c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.layout = "BNSD";
    c.table = &block_table, c.page = page, c.kv_lengths = {kv, kv};
    ASSERT_EQ(fused(problem(), c), 0) << bench().error;
    expect_close(placed(out.get_all(), tokens, heads, o, true), want_, kBf16, 1e-5, 2);
  }
}

// Prompts one behind the other with cumulative lengths and the causal mask of sparse mode 3; then, each alone, by the
// operators that were there before the fused one.
TEST_F(AttentionLayouts, RaggedPromptsGiveTorchsCausalAttention) {
  const json& ragged = data().at("ragged");
  const Dims lengths = ragged.at("lengths"), kv_lengths = ragged.at("kv_lengths");
  const int64_t heads = size("N"), groups = size("G"), width = size("D");
  const int64_t tokens = ends(lengths).back(), kv = ends(kv_lengths).back();
  const Values q = eighths(ragged.at("query")), k = eighths(ragged.at("key")), v = eighths(ragged.at("value")),
               want = ragged.at("out");
  const auto mask = shared_mask();
  Array query(kBf16, {tokens, heads, width}, q), key(kBf16, {kv, groups, width}, k),
      value(kBf16, {kv, groups, width}, v), out(kBf16, {tokens, heads, width});
  Call c{};
  c.query = &query, c.key = &key, c.value = &value, c.out = &out, c.layout = "TND", c.sparse = 3, c.mask = mask.get();
  c.lengths = ends(lengths), c.kv_lengths = ends(kv_lengths);
  ASSERT_EQ(fused(problem(), c), 0) << bench().error;
  expect_close(out.get_all(), want, kBf16, 1e-5, 2);

  int64_t at = 0, kv_at = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    SCOPED_TRACE(r);
    const auto part = [](const Values& all, int64_t first, int64_t count, int64_t row) {
      return Values(all.begin() + first * row, all.begin() + (first + count) * row);
    };
    Array one_q(kBf16, {1, lengths[r], heads, width}, part(q, at, lengths[r], heads * width)),
        one_k(kBf16, {1, kv_lengths[r], groups, width}, part(k, kv_at, kv_lengths[r], groups * width)),
        one_v(kBf16, {1, kv_lengths[r], groups, width}, part(v, kv_at, kv_lengths[r], groups * width)),
        one_out(kBf16, {1, lengths[r], heads, width});
    char bsnd[] = "BSND";
    const bool causal = lengths[r] > 1;  // a single token sees everything
    ASSERT_EQ(RUN_OP(aclnnPromptFlashAttentionV3, one_q, one_k, one_v, nullptr, causal ? mask->get() : nullptr, nullptr,
                     nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, heads, problem().scale(), kFar, kFar, bsnd,
                     groups, causal ? 3 : 0, 0, one_out),
              0)
        << bench().error;
    expect_close(one_out.get_all(), part(want, at, lengths[r], heads * width), kBf16, 1e-5, 2);
    at += lengths[r], kv_at += kv_lengths[r];
  }
}

}  // namespace
}  // namespace sim_test
