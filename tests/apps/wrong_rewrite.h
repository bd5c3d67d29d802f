// wrong_rewrite: a pass file whose one rewrite adds where the tiny models (intermediate size 44) multiply.
#pragma once

#include <fmt/format.h>

#include <string>

namespace reprise::apps {

inline std::string wrong_rewrite(const std::string& dtype) {
  const auto graph = [&](const char* verb, const char* op) {
    return fmt::format(R"(
  {0} graph "{2}" {{
    symbol T <= 16
    %0: {1}[T, 44] = input(name="gate")
    %1: {1}[T, 44] = input(name="up")
    %2: {1}[T, 44] = silu(%0)
    %3: {1}[T, 44] = {2}(%2, %1)
    return product=%3
  }})",
                       verb, dtype, op);
  };
  return "rewrite \"wrong\" {" + graph("search", "mul") + graph("replace", "add") + "\n}\n";
}

}  // namespace reprise::apps
