// Names of parameters that are made of several tensors or of some rows of one.
#include "nn/param_name.h"

#include <gtest/gtest.h>

#include "passes/derived_param.h"

namespace reprise::param_name_test {
namespace {

TEST(ParamName, StacksAreReadAndWritten) {
  const std::string name = "layers.3.experts.{2..9}.up_proj.weight";
  const nn::ParamName n = nn::parse_param_name(name);
  EXPECT_EQ(n.from, 2);
  EXPECT_EQ(n.to, 10);
  EXPECT_EQ(n.tensor_of(7), "layers.3.experts.7.up_proj.weight");
  EXPECT_EQ(n.text(), name);
}

TEST(ParamName, RowGroupsAreReadAndWritten) {
  for (const std::string name : {"kv_b_proj.weight@128+64/192", "kv_b_proj.weight@0+128/192T"}) {
    const nn::ParamName n = nn::parse_param_name(name);
    EXPECT_EQ(n.tensor, "kv_b_proj.weight");
    EXPECT_EQ(n.of, 192);
    EXPECT_EQ(n.transposed, name.back() == 'T');
    EXPECT_EQ(n.text(), name);
  }
}

TEST(ParamName, EverythingElseIsATensorsOwn) {
  for (const std::string name : {"a.weight", "a.{1..0}.b", "a.{x}.b", "a.{1..2", "a@1+2", "a@1+2/2", "a@0+0/4",
                                 "a@0+1/4X", "a@-1+1/4", "{..}", "a@99999999999999999999+1/4", "", "@", "{"}) {
    const nn::ParamName n = nn::parse_param_name(name);
    EXPECT_EQ(n.tensor, name);
    EXPECT_EQ(n.tensor_of(5), name);
    EXPECT_EQ(n.of, 0) << name;
    EXPECT_EQ(n.to, 1) << name;
  }
}

TEST(ParamName, PartsSayWhatIsRead) {
  const auto stacked = parts_of_name("e.{0..2}.w", Shape{Dim(3), Dim(5), Dim(7)});
  ASSERT_EQ(stacked.size(), 3u);
  EXPECT_EQ(stacked[2], (ParamPart{.tensor = "e.2.w", .rows = 5}));

  const auto values = parts_of_name("kv_b.w@4+2/6", Shape{Dim(3), Dim(2), Dim(7)});
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[1], (ParamPart{.tensor = "kv_b.w", .rows = 2, .first = 10, .of = 18}));

  const auto keys = parts_of_name("kv_b.w@0+4/6T", Shape{Dim(3), Dim(7), Dim(4)});
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(
      keys[2],
      (ParamPart{.tensor = "kv_b.w", .rows = 7, .recipe = Recipe::Transposed, .columns = 4, .first = 12, .of = 18}));

  const auto own = parts_of_name("norm.weight", Shape{Dim(9)});
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0], (ParamPart{.tensor = "norm.weight", .rows = 9}));
}

}  // namespace
}  // namespace reprise::param_name_test
