// Names of parameters that are made of several tensors or of some rows of one.
#include "nn/param_name.h"
#include "nn/row_ranges.h"

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

TEST(ParamName, RangesOfRowsAreReadAndWritten) {
  const std::string name = "in_proj.weight@0+8,8+8,16+24/64";
  const auto n = nn::parse_row_ranges(name);
  ASSERT_TRUE(n);
  EXPECT_EQ(n->tensor, "in_proj.weight");
  EXPECT_EQ(n->of, 64);
  ASSERT_EQ(n->ranges.size(), 3u);
  EXPECT_EQ(n->ranges[2].first, 16);
  EXPECT_EQ(n->ranges[2].rows, 24);
  EXPECT_EQ(n->text(), name);
  EXPECT_EQ(nn::tensor_of_param(name), "in_proj.weight");
  EXPECT_EQ(nn::tensor_of_param("kv_b_proj.weight@128+64/192"), "kv_b_proj.weight");
  EXPECT_EQ(nn::tensor_of_param("a.weight"), "a.weight");
  for (const char* other : {"a", "a@0+1/4", "a@0+1,/4", "a@0+1,2+3/4", "a@0+1,1+0/4", "a@0+1,1+1", "a@0+1,1+1/4T",
                            "a@0+1,1+1/", "a@,0+1/4", "a@0+1;1+1/4", "a@0+1,1+1/4/4"})
    EXPECT_FALSE(nn::parse_row_ranges(other)) << other;
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

  // Groups of one matrix or vector behind each other; with several ranges all groups of the first come first.
  const auto second_halves = parts_of_name("q.w@3+3/6", Shape{Dim(6), Dim(7)});
  ASSERT_EQ(second_halves.size(), 2u);
  EXPECT_EQ(second_halves[1], (ParamPart{.tensor = "q.w", .rows = 3, .first = 9, .of = 12}));
  const auto of_bias = parts_of_name("q.bias@3+3/6", Shape{Dim(6)});
  ASSERT_EQ(of_bias.size(), 2u);
  EXPECT_EQ(of_bias[1], (ParamPart{.tensor = "q.bias", .rows = 3, .first = 9, .of = 12}));
  const auto ranges = parts_of_name("in.w@0+2,4+1/5", Shape{Dim(6), Dim(7)});
  ASSERT_EQ(ranges.size(), 4u);
  EXPECT_EQ(ranges[1], (ParamPart{.tensor = "in.w", .rows = 2, .first = 5, .of = 10}));
  EXPECT_EQ(ranges[2], (ParamPart{.tensor = "in.w", .rows = 1, .first = 4, .of = 10}));
  EXPECT_EQ(ranges[3], (ParamPart{.tensor = "in.w", .rows = 1, .first = 9, .of = 10}));

  const auto own = parts_of_name("norm.weight", Shape{Dim(9)});
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0], (ParamPart{.tensor = "norm.weight", .rows = 9}));
}

}  // namespace
}  // namespace reprise::param_name_test
