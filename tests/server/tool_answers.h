// Answers of the families that models are of, with what they say (tests/data/tool_answers.json, which
// tools/golden/make_tool_answers.py makes from the families' chat templates and parsers).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "base/json.h"

namespace reprise::server {

inline std::string test_data(const std::string& name) {
  const auto text = read_file(std::string(REPRISE_SOURCE_DIR) + "/tests/data/" + name);
  EXPECT_TRUE(text.is_ok()) << name;
  return text.is_ok() ? *text : std::string();
}

inline const OrderedJson& tool_answers() {
  static const OrderedJson data = OrderedJson::parse(test_data("tool_answers.json"));
  return data;
}

}  // namespace reprise::server
