// What stands between the product of queries, keys and values and attention on the Ascend backend over the simulator:
// one entry beside its parts, bit for bit.
#include "backends/ascend_entry.h"
#include "base/half.h"

namespace reprise::ascend_heads_test {
namespace {

constexpr double kEps = 1e-6;

struct Case {
  int64_t tokens, heads, kv_heads, size, rotated;
  bool norms;
};
const Case kCases[] = {{1, 4, 2, 64, 64, false},
                       {3, 4, 1, 128, 128, true},
                       {5, 2, 2, 96, 32, true},
                       {2, 64, 8, 128, 128, true},
                       {4, 3, 3, 32, 32, false}};

class AscendHeads : public AscendEntryTest {
 protected:
  static AscendOperand floats(DType t, const Shape& shape, int64_t count, uint32_t salt) {
    std::vector<uint16_t> out;
    for (int64_t i = 0; i < count; ++i) {
      const float v = static_cast<float>((static_cast<uint32_t>(i) * 2654435761u + salt * 40503u) >> 16 & 4095) / 1024;
      out.push_back(t == DType::BF16 ? float_to_bf16(v - 2) : float_to_half(v - 2));
    }
    return operand({t, shape}, out);
  }

  static AscendOperand table_of(const Case& c) {
    std::vector<float> angles;
    for (int64_t i = 0; i < c.tokens * c.rotated; ++i)
      angles.push_back(static_cast<float>(i % 97) / 97 - static_cast<float>(i % 7) / 7);
    return operand({DType::F32, {Dim(c.tokens), Dim(c.rotated)}}, angles);
  }

  static AscendOperand as(const Shape& shape, DType t, std::vector<uint8_t> bytes) {
    return {{t, shape}, std::move(bytes)};
  }

  // The numbers of some heads of the product, as rows of their own.
  std::vector<uint8_t> slice(const AscendOperand& product, int64_t begin, int64_t width) {
    return run("ascend.slice", {product}, {{"begin", begin}, {"size", width}})[0];
  }
};

TEST_F(AscendHeads, OneEntryGivesTheBitsOfItsParts) {
  constexpr int64_t kPages = 2;
  for (const char* variant : {"", ".scattered"})
    for (const Case& c : kCases)
      for (const DType t : {DType::BF16, DType::F16}) {
        SCOPED_TRACE(fmt::format("{}{} tokens, {}/{} heads of {} {}", variant, c.tokens, c.heads, c.kv_heads, c.size,
                                 dtype_name(t)));
        const int64_t d = c.size, row = (c.heads + 2 * c.kv_heads) * d, width = c.kv_heads * d;
        const Shape cache{Dim(kPages), Dim(kPageTokens), Dim(width)};
        const AscendOperand product = floats(t, {Dim(c.tokens), Dim(row)}, c.tokens * row, 1), table = table_of(c);
        const AscendOperand q_weight = floats(t, {Dim(d)}, d, 2), k_weight = floats(t, {Dim(d)}, d, 3);
        std::vector<int32_t> slots;
        for (int64_t i = 0; i < c.tokens; ++i) slots.push_back(static_cast<int32_t>(250 - 51 * i));
        const AscendOperand where = operand({DType::I32, {Dim(c.tokens)}}, slots);
        const AscendOperand keys = floats(t, cache, kPages * kPageTokens * width, 4),
                            values = floats(t, cache, kPages * kPageTokens * width, 5);

        const auto turned = [&](int64_t begin, int64_t heads, const AscendOperand& weight) {
          const Shape shape{Dim(c.tokens), Dim(heads), Dim(d)};
          AscendOperand x = as(shape, t, slice(product, begin, heads * d));
          if (c.norms) x = as(shape, t, run("ascend.rms_norm", {x, weight}, {{"eps", kEps}})[0]);
          return run("ascend.rope", {x, table}, {})[0];
        };
        const std::vector<uint8_t> want_queries = turned(0, c.heads, q_weight);
        const Shape rows{Dim(c.tokens), Dim(width)};
        const auto written = [&](const AscendOperand& to, std::vector<uint8_t> bytes) {
          return run("ascend.row_write", {to, as(rows, t, std::move(bytes)), where}, {})[0];
        };
        const std::vector<uint8_t> want_keys = written(keys, turned(c.heads * d, c.kv_heads, k_weight)),
                                   want_values = written(values, slice(product, c.heads * d + width, width));
        ASSERT_NE(want_keys, keys.bytes);
        ASSERT_NE(want_values, values.bytes);

        std::vector<AscendOperand> in{keys, values, product, table, where};
        if (c.norms) in.push_back(q_weight), in.push_back(k_weight);
        const auto got = run(std::string("ascend.split_qk_norm_rope_rows") + variant, in,
                             {{"heads", c.heads}, {"kv_heads", c.kv_heads}, {"eps", c.norms ? kEps : 0.0}});
        ASSERT_EQ(got.size(), 3u);
        EXPECT_EQ(got[0], want_keys);
        EXPECT_EQ(got[1], want_values);
        EXPECT_EQ(got[2], want_queries);
      }
}

TEST_F(AscendHeads, HeadsThatNoMultipleOf32FitsAreParts) {
  const TensorType cache{DType::BF16, {Dim(2), Dim(kPageTokens), Dim(80)}};
  const auto entry = chosen(
      "split_qk_norm_rope_rows",
      {cache, cache, {DType::BF16, {Dim(3), Dim(4 * 80)}}, {DType::F32, {Dim(3), Dim(80)}}, {DType::I32, {Dim(3)}}},
      {{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}});
  ASSERT_FALSE(entry.is_ok());
  EXPECT_NE(entry.status().message().find("multiples of 32"), std::string::npos) << entry.status().message();
}

}  // namespace
}  // namespace reprise::ascend_heads_test
