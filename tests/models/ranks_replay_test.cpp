// Replays of several ranks are checked as those of one are: what goes wrong on any rank is found, named and taken out
// of service on all of them, and the answers stay those of one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "engine/local_world.h"
#include "support/tiny_models.h"
#include "support/traffic.h"

namespace reprise::ranks_replay_test {
namespace {

using testing_support::same_bits;

Result<std::unique_ptr<engine::Engine>> open(const std::string& model, const engine::GraphOptions& graph,
                                             std::shared_ptr<ranks::Member> member) {
  DeviceOptions device;
  device.threads = 1;
  device.pin_threads = false;
  device.member = member;
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  engine::EngineOptions o;
  o.model_path = testing_support::tiny_model_path(model);
  o.chunked_prefill_size = 64;
  o.max_running_requests = 8;
  o.max_total_tokens = 24 * 128;
  o.graph = graph;
  o.member = std::move(member);
  return engine::Engine::create(o, std::move(platform));
}

Result<std::unique_ptr<engine::LocalWorld>> world_of(const std::string& model, const engine::GraphOptions& graph,
                                                     int size = 2) {
  return engine::LocalWorld::start(
      size, [=](std::shared_ptr<ranks::Member> member) { return open(model, graph, std::move(member)); });
}

std::vector<float> traffic(engine::Engine& e, int decodes = 6) {
  return testing_support::Traffic(e, testing_support::lengths(3, 1, 3, 17), 8).run(decodes);
}

std::vector<float> right_answer(const std::string& model) {
  auto key = open(model, testing_support::eager(), nullptr);
  EXPECT_TRUE(key.is_ok()) << key.status().message();
  return traffic(**key);
}

class Folder {
 public:
  Folder() : path_(std::filesystem::path(testing::TempDir()) / fmt::format("reprise-ranks-replay-{}", ::getpid())) {
    std::filesystem::remove_all(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

struct FaultCase {
  const char* model;
  const char* fault;
  const char* seen;  // what the quarantine's reason says
  int size = 2;
};

class RanksFaultTest : public testing::TestWithParam<FaultCase> {};

TEST_P(RanksFaultTest, IsFoundAndTheAnswerStaysThatOfOneRank) {
  const FaultCase& c = GetParam();
  const Folder folder;
  engine::GraphOptions g;
  g.verify_replay = 1;
  g.report_dir = folder.path();
  const auto fault = engine::parse_fault(c.fault);
  ASSERT_TRUE(fault.is_ok()) << fault.status().message();
  g.faults = {*fault};
  auto world = world_of(c.model, g, c.size);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& e = (*world)->front();
  EXPECT_TRUE(same_bits(right_answer(c.model), traffic(e)));
  const auto bad = e.runner("decode")->quarantined();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_NE(bad.begin()->second.find(c.seen), std::string::npos) << bad.begin()->second;
  EXPECT_GT(e.runner("decode")->stats().fallbacks.at(bad.begin()->second), 0u);
  for (int rank = 1; rank < c.size; ++rank)
    EXPECT_TRUE((*world)->at(rank).runner("decode")->quarantined().contains(bad.begin()->first)) << rank;
  if (fault->kind != engine::FaultKind::KernelError) {
    EXPECT_EQ(e.counters().differences, 1u);
    const auto text = read_file(e.counters().last_report);
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    const auto report = parse_json(*text, "report");
    ASSERT_TRUE(report.is_ok()) << report.status().message();
    EXPECT_EQ((*report)["rank"], fault->rank.value_or(0));
    EXPECT_GE((*report)["node"], 0);
    EXPECT_FALSE((*report)["op"].get<std::string>().empty());
  }
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

INSTANTIATE_TEST_SUITE_P(Kinds, RanksFaultTest,
                         testing::Values(FaultCase{"qwen3_tied", "padding-leak@3", "on rank 0: "},
                                         FaultCase{"qwen3_tied", "stale-input@3", "on rank 0: "},
                                         FaultCase{"llama_gqa3_tied", "wrong-length@3", "on rank 0: ", 3},
                                         FaultCase{"qwen3_tied", "kernel-error@3", "kernel failed"},
                                         FaultCase{"deepseek_v3_dense", "stale-input@3", "on rank 0: "},
                                         FaultCase{"qwen3_next", "stale-input@3", "on rank 0: "},
                                         FaultCase{"qwen3_5", "padding-leak@3", "on rank 0: ", 3},
                                         FaultCase{"qwen3_5", "stale-input@3", "on rank 0: "}),
                         [](auto& info) { return fmt::format("case{}", info.index); });

std::vector<int32_t> greedy(engine::Engine& e, int steps) {
  std::vector<int32_t> out;
  engine::Sequence s({5, 6, 7, 8});
  EXPECT_TRUE(e.reserve(s, s.size() + steps).is_ok());
  for (int i = 0; i < steps; ++i) {
    const engine::StepItem item{&s, s.uncached(), 1};
    const auto ticket = e.submit({&item, 1}, engine::StepOutput::NextTokens);
    EXPECT_TRUE(ticket.is_ok()) << ticket.status().message();
    if (!ticket.is_ok()) break;
    const auto result = e.wait(*ticket);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    if (!result.is_ok()) break;
    out.push_back(result->tokens[0]);
    s.append(result->tokens[0]);
  }
  e.release(s);
  return out;
}

// The token that a follower merges itself: rank 0 has the right one, and no collective follows that could show it.
TEST(RanksReplay, AFaultOnAFollowerAloneIsFoundAndNamed) {
  const char* model = "qwen3_tied";
  const Folder folder;
  engine::GraphOptions g;
  g.verify_replay = 1;
  g.report_dir = folder.path();
  g.faults = {*engine::parse_fault("bit-flip@3/1")};
  auto key = open(model, testing_support::eager(), nullptr);
  ASSERT_TRUE(key.is_ok()) << key.status().message();
  auto world = world_of(model, g);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  engine::Engine& e = (*world)->front();
  EXPECT_EQ(greedy(**key, 6), greedy(e, 6));
  EXPECT_EQ(e.counters().differences, 1u);
  const auto bad = e.runner("decode")->quarantined();
  ASSERT_EQ(bad.size(), 1u);
  const std::string& reason = bad.begin()->second;
  EXPECT_NE(reason.find("step 3 on rank 1: next_tokens row 0"), std::string::npos) << reason;
  EXPECT_NE(reason.find("written by merge_argmax, node "), std::string::npos) << reason;
  EXPECT_EQ(reason.find("differs too"), std::string::npos) << reason;
  EXPECT_TRUE((*world)->at(1).runner("decode")->quarantined().contains(bad.begin()->first));
  const auto text = read_file(e.counters().last_report);
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  const auto report = parse_json(*text, "report");
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ((*report)["rank"], 1);
  EXPECT_EQ((*report)["op"], "merge_argmax");
  for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
}

TEST(RanksReplay, NothingIsFoundWhereNothingIsWrong) {
  for (const auto& [model, size] :
       {std::pair{"llama_gqa3_tied", 3}, {"mixtral_top2", 2}, {"deepseek_v2_lite", 2}, {"qwen3_next", 2}}) {
    engine::GraphOptions g;
    g.verify_replay = 2;
    auto world = world_of(model, g, size);
    ASSERT_TRUE(world.is_ok()) << world.status().message();
    engine::Engine& e = (*world)->front();
    EXPECT_TRUE(same_bits(right_answer(model), traffic(e))) << model;
    EXPECT_GT(e.counters().checked, 1u) << model;
    EXPECT_EQ(e.counters().differences, 0u) << model;
    EXPECT_TRUE(e.runner("decode")->quarantined().empty()) << model;
    for (const Status& end : (*world)->stop()) EXPECT_TRUE(end.is_ok()) << end.message();
  }
}

TEST(RanksReplay, ACaptureThatFailsDegradesAllRanksOrEndsTheStart) {
  engine::GraphOptions g;
  g.faults = {*engine::parse_fault("alloc@2")};
  auto world = world_of("qwen3_tied", g);
  ASSERT_TRUE(world.is_ok()) << world.status().message();
  for (int rank : {0, 1}) EXPECT_EQ((*world)->at(rank).runner("decode")->mode(), GraphMode::Piecewise) << rank;
  EXPECT_TRUE(same_bits(right_answer("qwen3_tied"), traffic((*world)->front())));
  (*world)->stop();
  g.faults = {*engine::parse_fault("alloc@2/1")};
  const auto differ = world_of("qwen3_tied", g);
  ASSERT_FALSE(differ.is_ok());
  EXPECT_NE(differ.status().message().find("captured sizes: rank 1 has"), std::string::npos)
      << differ.status().message();
}

TEST(RanksReplay, FaultsOfRanksThatAreNotThereAreRefused) {
  engine::GraphOptions g;
  g.faults = {*engine::parse_fault("bit-flip@2/2")};
  const auto none = world_of("qwen3_tied", g);
  ASSERT_FALSE(none.is_ok());
  EXPECT_NE(none.status().message().find("`inject_fault` bit-flip on rank 2: allowed: 0 to 1"), std::string::npos)
      << none.status().message();
  for (const char* bad : {"padding-leak@3/1", "bit-flip@3/x", "bit-flip@3/-1", "bit-flip@/1"})
    EXPECT_FALSE(engine::parse_fault(bad).is_ok()) << bad;
}

}  // namespace
}  // namespace reprise::ranks_replay_test
