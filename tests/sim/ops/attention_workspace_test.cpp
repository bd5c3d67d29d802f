// How much workspace attention asks for: constant by shape, more where the cores cut a row, never above the maximum.
#include "sim/ops/attention_cases.h"

namespace sim_test {
namespace {

using ascend_sim::Cann;
using ascend_sim::Rule;

struct Shape {
  const char* layout = "BSND";
  Dims lengths, kv_lengths;
  int64_t heads = 32, kv_heads = 8, width = 128, rope = 0, room = 64;
};

class Workspace : public OpsTest {
 protected:
  // The size, or 0 with the code in `status`; with an executor that is given, phase 2 runs with `offered` bytes.
  static uint64_t size_of(const Shape& s, bool bound, int64_t offered = -1, aclnnStatus* status = nullptr) {
    const bool joined = std::string(s.layout) == "TND";
    const auto requests = static_cast<int64_t>(s.lengths.size());
    const int64_t tokens = ends(s.lengths).back();
    const auto of_query = [&](int64_t width) {
      return joined ? Dims{tokens, s.heads, width} : Dims{requests, s.lengths[0], s.heads, width};
    };
    Array query(kBf16, of_query(s.width)), out(kBf16, of_query(s.width)), q_rope(kBf16, of_query(64)),
        key(kBf16, {2, 128, s.kv_heads * s.width}), value(kBf16, {2, 128, s.kv_heads * s.width}),
        k_rope(kBf16, {2, 128, s.kv_heads * 64}), table(kInt32, {requests, s.room}), none(kFloat, {0});
    const List keys({&key}), values({&value});
    const Ints q_lengths(ends(s.lengths)), k_lengths(s.kv_lengths);
    std::string layout = s.layout;
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    const auto call =
        bound ? aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize : aclnnFusedInferAttentionScoreV3GetWorkspaceSize;
    aclnnStatus code =
        call(query, keys, values, nullptr, nullptr, joined ? static_cast<const aclIntArray*>(q_lengths) : nullptr,
             k_lengths, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, table, nullptr, nullptr, nullptr,
             nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, s.rope ? q_rope.get() : nullptr,
             s.rope ? k_rope.get() : nullptr, nullptr, s.heads, 0.1, kFar, kFar, layout.data(), s.kv_heads, 0, 0, 128,
             0, false, 0, 0, out, none, &size, &executor);
    if (code == 0 && offered >= 0)
      code = aclnnFusedInferAttentionScoreV3(query.device(), static_cast<uint64_t>(offered), executor, nullptr);
    if (executor) aclDestroyAclOpExecutor(executor);
    if (status)
      *status = code;
    else
      EXPECT_EQ(code, 0) << bench().error;
    return size;
  }
  static constexpr uint64_t kMega = uint64_t{1} << 20;
};

// Longest equal lengths, as a probe asks for, need less than unequal ones later.
TEST_F(Workspace, ShorterLengthsMayNeedMore) {
  Shape probe;
  probe.lengths = Dims(5, 1), probe.kv_lengths = Dims(5, 64 * 128);  // 5 requests of 8 heads on 20 cores
  Shape later = probe;
  later.kv_lengths = {8192, 100, 100, 100, 100};
  // One block of 8192 keys is never cut; with groups of 10 a block has 2048.
  EXPECT_EQ(size_of(later, false), size_of(probe, false));
  probe.heads = later.heads = 80;
  const uint64_t planned = size_of(probe, false), needed = size_of(later, false);
  EXPECT_GT(needed, planned) << "shorter lengths are cut";
  EXPECT_LE(needed, size_of(probe, true));
  aclnnStatus status = 0;
  size_of(later, false, static_cast<int64_t>(planned), &status);
  EXPECT_EQ(status, kBad);
  EXPECT_NE(bench().error.find("rule attention-workspace"), std::string::npos) << bench().error;
}

// 16 MiB, 3 MiB for each core; a short query over many keys adds its shared rows.
TEST_F(Workspace, JoinedTokens) {
  Shape prompt;
  prompt.layout = "TND", prompt.lengths = {500}, prompt.kv_lengths = {500};
  EXPECT_EQ(size_of(prompt, false), 76 * kMega);
  prompt.kv_lengths = {8000};
  EXPECT_EQ(size_of(prompt, false), 76 * kMega) << "whatever the lengths";
  Shape turn = prompt;
  turn.lengths = {4}, turn.kv_lengths = {4000};
  const uint64_t needed = size_of(turn, false);
  EXPECT_GT(needed, 76 * kMega) << "a chat's next turn: few tokens over many keys on idle cores";
  turn.lengths = {17};
  EXPECT_EQ(size_of(turn, false), 76 * kMega);
  turn.lengths = {4}, turn.kv_lengths = {1000};
  EXPECT_EQ(size_of(turn, false), 76 * kMega);
  EXPECT_EQ(size_of(prompt, true), 76 * kMega + 2 * 20 * 128 * (128 + 1) * 32 * 4);
  EXPECT_LE(needed, size_of(prompt, true));
  Shape idle = turn;  // more tasks than 0.4 of the cores: nothing is shared
  idle.lengths = {4, 4}, idle.kv_lengths = {4000, 4000};
  EXPECT_EQ(size_of(idle, false), 76 * kMega);
}

TEST_F(Workspace, StepsByShape) {
  Shape step;
  step.lengths = Dims(20, 1), step.kv_lengths = Dims(20, 5000);
  // 4 rows of one key head: products of 8192 keys and 128 values, twice for each of 20 cores.
  EXPECT_EQ(size_of(step, false), 16 * kMega + 2 * 20 * 4 * (8192 * 6 + 128 * 8));
  EXPECT_EQ(size_of(step, true), 16 * kMega + 2 * 20 * 512 * (512 * 6 + 128 * 8) + 20 * 2 * 512 * (128 + 16) * 4);
}

TEST_F(Workspace, AbsorbedHeads) {
  Shape step;
  step.heads = 128, step.kv_heads = 1, step.width = 512, step.rope = 64;
  step.lengths = Dims(20, 1), step.kv_lengths = Dims(20, 4096);
  const uint64_t fixed = 16 * kMega + 2 * 20 * 128 * (512 * 6 + 512 * 8) + 2 * 20 * 256 * 8;
  EXPECT_EQ(size_of(step, false), fixed) << "a request for each core";
  step.kv_lengths[3] = 100;
  EXPECT_EQ(size_of(step, false), fixed + 20 * 2 * 256 * (512 + 16) * 4) << "unequal ones are cut";
  EXPECT_LE(size_of(step, false), size_of(step, true));
}

TEST_F(Workspace, TheMaximumHoldsForAnyLengths) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    Shape s;
    s.layout = i % 2 ? "TND" : "BSND";
    s.heads = i % 3 ? 32 : 16, s.kv_heads = i % 5 ? 8 : 2;
    const auto requests = static_cast<int64_t>(random() % 30 + 1);
    for (int64_t r = 0; r < requests; ++r) {
      s.lengths.push_back(i % 2 ? 1 + random() % 16 : 1);
      s.kv_lengths.push_back(static_cast<int64_t>(random() % 8192) + 1);
    }
    EXPECT_LE(size_of(s, false), size_of(s, true)) << i;
  }
}

TEST_F(Workspace, TheMaximumOfJoinedTokens) {
  Shape s;
  s.layout = "TND", s.lengths = {500}, s.kv_lengths = {500};
  bench().machine.cann = Cann::V8_5;
  aclnnStatus status = 0;
  size_of(s, true, -1, &status);
  EXPECT_EQ(status, kLimit);
  EXPECT_NE(bench().error.find("rule attention-max-joined"), std::string::npos) << bench().error;
  EXPECT_GT(size_of(s, false), 0u);
  s.width = 512, s.rope = 64, s.kv_heads = 1, s.lengths = {4};
  EXPECT_GT(size_of(s, true), 0u) << "absorbed heads go another way";
}

}  // namespace
}  // namespace sim_test
