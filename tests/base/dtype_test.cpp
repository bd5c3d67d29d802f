#include "base/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace reprise::dtype_test {
namespace {

constexpr DType kAll[] = {DType::F32, DType::F16, DType::BF16, DType::I8,  DType::U8,
                          DType::I32, DType::I64, DType::Bool, DType::F64, DType::I16};

TEST(DTypeNames, ShortNamesParseBack) {
  std::set<std::string_view> names;
  for (DType t : kAll) {
    const auto name = dtype_name(t);
    EXPECT_TRUE(names.insert(name).second) << name;
    const auto back = parse_dtype(name);
    ASSERT_TRUE(back.is_ok()) << name;
    EXPECT_EQ(*back, t);
  }
}

TEST(DTypeNames, LongNames) {
  EXPECT_EQ(*parse_dtype("float32"), DType::F32);
  EXPECT_EQ(*parse_dtype("float16"), DType::F16);
  EXPECT_EQ(*parse_dtype("half"), DType::F16);
  EXPECT_EQ(*parse_dtype("bfloat16"), DType::BF16);
}

TEST(DTypeNames, UnknownNameListsTheAllowedOnes) {
  for (const char* name : {"", "F32", "float8", "bf16 "}) {
    const auto r = parse_dtype(name);
    ASSERT_FALSE(r.is_ok()) << name;
    const std::string& message = r.status().message();
    EXPECT_NE(message.find(fmt::format("\"{}\"", name)), std::string::npos);
    for (DType t : kAll) EXPECT_NE(message.find(dtype_name(t)), std::string::npos) << message;
  }
}

TEST(DTypeSizes, MatchTheirNames) {
  for (DType t : kAll) {
    const std::string name(dtype_name(t));
    const size_t digits = name.find_first_of("0123456789");
    const size_t bits = digits == std::string::npos ? 8 : std::stoul(name.substr(digits));
    EXPECT_EQ(size_of(t) * 8, bits) << name;
    EXPECT_EQ(is_float(t), name[0] == 'f' || name.rfind("bf", 0) == 0) << name;
  }
}

}  // namespace
}  // namespace reprise::dtype_test
