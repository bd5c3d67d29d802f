// What latent attention's tokens leave in the caches on the Ascend backend over the simulator: one entry beside its
// parts, and the forms of the angles that the vendor's rotations take.
#include "backends/ascend_entry.h"
#include "base/half.h"

namespace reprise::ascend_latent_rows_test {
namespace {

constexpr int64_t kWidth = 512, kRotated = 64, kPages = 2;
constexpr double kEps = 1e-6;

class AscendLatentRows : public AscendEntryTest {
 protected:
  static AscendOperand floats(DType t, const Shape& shape, uint32_t salt) {
    std::vector<uint16_t> out;
    const int64_t count = shape.elements({});
    for (int64_t i = 0; i < count; ++i) {
      const float v = static_cast<float>((static_cast<uint32_t>(i) * 2654435761u + salt * 40503u) >> 16 & 4095) / 1024;
      out.push_back(t == DType::BF16 ? float_to_bf16(v - 2) : float_to_half(v - 2));
    }
    return operand({t, shape}, out);
  }

  static AscendOperand table_of(int64_t tokens) {
    std::vector<float> angles;
    for (int64_t i = 0; i < tokens * kRotated; ++i)
      angles.push_back(static_cast<float>(i % 97) / 97 - static_cast<float>(i % 7) / 7);
    return operand({DType::F32, {Dim(tokens), Dim(kRotated)}}, angles);
  }

  AscendOperand converted(const AscendOperand& table, DType t, bool planes) {
    const Dim tokens = table.type.shape[0];
    const Shape shape{Dim(tokens.factor * (planes ? 2 : 1)), Dim(kRotated)};
    return {{t, shape},
            run("ascend.rope_angles", {table}, {{"out", std::string(dtype_name(t))}, {"planes", int64_t{planes}}})[0]};
  }
};

TEST_F(AscendLatentRows, PlanesHoldEveryAngleTwice) {
  const int64_t tokens = 3, half = kRotated / 2;
  const AscendOperand table = table_of(tokens);
  const std::vector<float> angles = numbers_of<float>(table.bytes);
  const auto rows = numbers_of<uint16_t>(converted(table, DType::BF16, false).bytes),
             planes = numbers_of<uint16_t>(converted(table, DType::BF16, true).bytes);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < kRotated; ++i) {
      const auto at = [&](int64_t column) { return float_to_bf16(angles[static_cast<size_t>(t * kRotated + column)]); };
      EXPECT_EQ(rows[static_cast<size_t>(t * kRotated + i)], at(i));
      EXPECT_EQ(planes[static_cast<size_t>(t * kRotated + i)], at(i % half));
      EXPECT_EQ(planes[static_cast<size_t>((tokens + t) * kRotated + i)], at(half + i % half));
    }
}

// Neighbours turned by either operator, with angles converted before or within.
TEST_F(AscendLatentRows, NeighboursAreTurnedAlike) {
  for (const DType t : {DType::BF16, DType::F16}) {
    const int64_t tokens = 5;
    const AscendOperand x = floats(t, {Dim(tokens), Dim(3), Dim(kRotated)}, 1), table = table_of(tokens);
    const Attrs neighbours{{"interleaved", int64_t{1}}};
    const auto want = run("ascend.rope.apart", {x, table}, neighbours)[0];
    EXPECT_EQ(run("ascend.rope.neighbours", {x, table}, neighbours)[0], want);
    EXPECT_EQ(run("ascend.rope.neighbours", {x, converted(table, t, true)}, neighbours)[0], want);
    EXPECT_EQ(run("ascend.rope.apart", {x, converted(table, t, false)}, neighbours)[0], want);
    const auto refused = chosen("rope", {x.type, {t, {Dim(tokens), Dim(kRotated)}}}, {});
    EXPECT_TRUE(refused.is_ok()) << refused.status().message();
    const auto planes = chosen("rope", {x.type, {t, {Dim(2 * tokens), Dim(kRotated)}}}, {});
    ASSERT_FALSE(planes.is_ok()) << "pairs that lie apart";
  }
}

TEST_F(AscendLatentRows, OneEntryGivesTheBitsOfItsParts) {
  for (const DType t : {DType::BF16, DType::F16})
    for (const int64_t tokens : {1, 3, 40}) {
      SCOPED_TRACE(fmt::format("{} tokens {}", tokens, dtype_name(t)));
      const Shape pool{Dim(kPages), Dim(kPageTokens), Dim(kWidth)}, small{Dim(kPages), Dim(kPageTokens), Dim(kRotated)};
      const AscendOperand latents = floats(t, pool, 1), ropes = floats(t, small, 2),
                          kv = floats(t, {Dim(tokens), Dim(kWidth + kRotated)}, 3),
                          weight = floats(t, {Dim(kWidth)}, 4), table = table_of(tokens);
      std::vector<int32_t> slots;
      for (int64_t i = 0; i < tokens; ++i) slots.push_back(static_cast<int32_t>(250 - 3 * i));
      const AscendOperand where = operand({DType::I32, {Dim(tokens)}}, slots);

      const auto part = [&](int64_t begin, int64_t size) {
        return AscendOperand{{t, {Dim(tokens), Dim(size)}},
                             run("ascend.slice", {kv}, {{"begin", begin}, {"size", size}})[0]};
      };
      const AscendOperand rows = part(0, kWidth), key = part(kWidth, kRotated);
      const AscendOperand normed{rows.type, run("ascend.rms_norm", {rows, weight}, {{"eps", kEps}})[0]};
      const AscendOperand heads{{t, {Dim(tokens), Dim(1), Dim(kRotated)}}, key.bytes};
      const AscendOperand turned{key.type,
                                 run("ascend.rope.neighbours", {heads, table}, {{"interleaved", int64_t{1}}})[0]};
      const auto want_latents = run("ascend.row_write", {latents, normed, where}, {})[0],
                 want_ropes = run("ascend.row_write", {ropes, turned, where}, {})[0];
      ASSERT_NE(want_latents, latents.bytes);
      ASSERT_NE(want_ropes, ropes.bytes);

      const AscendOperand wide{{DType::I64, {Dim(tokens)}}, run("ascend.index_i64", {where}, {})[0]};
      for (const bool once : {false, true}) {
        const auto got =
            run("ascend.latent_rows",
                {latents, ropes, kv, weight, once ? converted(table, t, true) : table, once ? wide : where},
                {{"eps", kEps}});
        ASSERT_EQ(got.size(), 2u);
        EXPECT_EQ(got[0], want_latents) << once;
        EXPECT_EQ(got[1], want_ropes) << once;
      }
    }
}

TEST_F(AscendLatentRows, OtherSizesArePartsForTheVendorsReason) {
  const TensorType latents{DType::BF16, {Dim(2), Dim(kPageTokens), Dim(256)}},
      ropes{DType::BF16, {Dim(2), Dim(kPageTokens), Dim(64)}};
  const auto entry = chosen("latent_rows",
                            {latents,
                             ropes,
                             {DType::BF16, {Dim(3), Dim(320)}},
                             {DType::BF16, {Dim(256)}},
                             {DType::F32, {Dim(3), Dim(64)}},
                             {DType::I32, {Dim(3)}}},
                            {{"eps", kEps}});
  ASSERT_FALSE(entry.is_ok());
  EXPECT_NE(entry.status().message().find("latents of 512"), std::string::npos) << entry.status().message();
}

}  // namespace
}  // namespace reprise::ascend_latent_rows_test
