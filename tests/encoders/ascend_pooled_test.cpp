// Vectors and scores on the Ascend backend over the simulator: against transformers (tests/data/encoders), alone and
// with others, eager and from captured graphs.
#include <algorithm>

#include "sched/embedder.h"
#include "support/pooled_goldens.h"
#include "support/tiny_models.h"

namespace reprise::ascend_pooled_test {
namespace {

using engine::GraphPolicy;
using testing_support::cosine;
using testing_support::EngineSetup;

struct Case {
  std::string model;
  DType dtype;
};

class AscendPooled : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    folder = std::string(REPRISE_SOURCE_DIR) + "/tests/data/encoders/" + GetParam().model;
    goldens = testing_support::read_pooled_goldens(folder);
    ASSERT_GE(goldens.size(), 3u);
    std::sort(goldens.begin(), goldens.end(),
              [](const auto& a, const auto& b) { return a.request.tokens.size() < b.request.tokens.size(); });
  }

  Result<std::unique_ptr<engine::Engine>> open(GraphPolicy policy, GraphMode mode = GraphMode::Piecewise) const {
    EngineSetup s;
    s.device = DeviceKind::Ascend;
    s.dtype = GetParam().dtype;
    s.policy = policy;
    s.prefill = mode;
    s.rows = 4;
    s.context = s.chunk = 140;
    return testing_support::open_engine(folder, s);
  }

  std::vector<std::vector<float>> rows_of(engine::Engine& e, size_t texts) const {
    std::vector<sched::EmbeddingRequest> requests;
    for (size_t i = 0; i < texts; ++i) requests.push_back(goldens[i].request);
    auto rows = sched::Embedder(e).run(requests);
    EXPECT_TRUE(rows.is_ok()) << rows.status().message();
    return rows.is_ok() ? std::move(*rows) : std::vector<std::vector<float>>();
  }

  std::string folder;
  std::vector<testing_support::PooledGolden> goldens;
};

TEST_P(AscendPooled, RowsAreThoseOfTheReference) {
  auto e = open(GraphPolicy::Auto);
  ASSERT_TRUE(e.is_ok()) << e.status().message();
  const auto rows = rows_of(**e, goldens.size());
  ASSERT_EQ(rows.size(), goldens.size());
  const bool single = GetParam().dtype == DType::F32;
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), goldens[i].row.size());
    if (rows[i].size() > 1) {
      EXPECT_GE(cosine(rows[i], goldens[i].row), single ? 1 - 1e-5 : 0.998) << i;
    }
    const double near = single ? 1e-4 : 0.05;
    for (size_t k = 0; k < rows[i].size(); ++k) ASSERT_NEAR(rows[i][k], goldens[i].row[k], near) << i << ", " << k;
  }
}

// A text with others has the bits that it has alone where its rows see no others' in either way.
TEST_P(AscendPooled, EagerAndCapturedStepsGiveTheSameBits) {
  std::vector<std::vector<float>> expected;
  for (const auto& [policy, mode] :
       {std::pair{GraphPolicy::Off, GraphMode::Piecewise}, std::pair{GraphPolicy::Required, GraphMode::Piecewise},
        std::pair{GraphPolicy::Required, GraphMode::Whole}}) {
    SCOPED_TRACE(policy == GraphPolicy::Off ? "eager" : graph_mode_name(mode));
    auto e = open(policy, mode);
    ASSERT_TRUE(e.is_ok()) << e.status().message();
    const auto rows = rows_of(**e, 2);
    ASSERT_EQ(rows.size(), 2u);
    if (expected.empty()) expected = rows;
    EXPECT_EQ(rows, expected);
    EXPECT_EQ(rows_of(**e, 1)[0], expected[0]);
    EXPECT_EQ((*e)->runner("prefill")->stats().replays > 0, policy != GraphPolicy::Off);
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* model : {"bert_mean", "bert_cls_old", "bert_scores", "roberta_mean", "roberta_scores",
                            "qwen2_both_sides", "bert_dense", "llama_bidirectional"})
    for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) out.push_back({model, dtype});
  // The vendor's attention over a cache has no fp32.
  for (const char* model : {"qwen3_last", "qwen3_mean", "qwen3_yes_no"})
    for (const DType dtype : {DType::BF16, DType::F16}) out.push_back({model, dtype});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, AscendPooled, testing::ValuesIn(cases()),
                         [](const auto& i) { return fmt::format("{}_{}", i.param.model, dtype_name(i.param.dtype)); });

}  // namespace
}  // namespace reprise::ascend_pooled_test
