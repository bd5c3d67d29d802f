// What a person is told about functions and operators that are missing, and how many queues a graph takes.
#include <gtest/gtest.h>

#include "backends/ascend/ascend_graph.h"

namespace reprise::ascend {
namespace {

TEST(AscendPurposes, EverythingThatMayBeMissingSaysWhatItIsFor) {
  std::vector<std::string> names = Operators().missing();  // nothing was looked up
  EXPECT_GT(names.size(), 30u);
#define REPRISE_TEST_SKIP(name, result, arguments)
#define REPRISE_TEST_NAME(name, result, arguments) \
  if (!std::string_view(#name).starts_with("ascendSim")) names.emplace_back(#name);
  REPRISE_ACL_FUNCTIONS(REPRISE_TEST_SKIP, REPRISE_TEST_NAME)
#undef REPRISE_TEST_SKIP
#undef REPRISE_TEST_NAME
  const std::string unknown = purpose_of("aclnnNoSuchThing");
  for (const std::string& name : names) EXPECT_NE(purpose_of(name), unknown) << name;
}

TEST(AscendQueues, AGraphTakesOneAndAFurtherOneAfterSoManyTasks) {
  EXPECT_EQ(GraphResources::queues_of(1), 1);
  EXPECT_EQ(GraphResources::queues_of(2013), 1);
  EXPECT_EQ(GraphResources::queues_of(2014), 2);
  EXPECT_EQ(GraphResources::queues_of(3 * 2013), 3);
}

}  // namespace
}  // namespace reprise::ascend
