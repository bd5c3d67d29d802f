// SplitText: what a piece of an answer adds to its parts. A plain value; any thread.
#pragma once

#include <string>
#include <vector>

namespace reprise::server {

struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON
};

struct SplitText {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
};

}  // namespace reprise::server
