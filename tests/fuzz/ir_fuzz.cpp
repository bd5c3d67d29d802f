// The IR's text parser: no input crashes it, and whatever it accepts prints and parses back to itself.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "graph/text.h"
#include "ops/core.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const reprise::OpRegistry* ops = [] {
    auto* r = new reprise::OpRegistry;
    reprise::register_core_ops(*r);
    return r;
  }();
  auto graph = reprise::parse_graph({reinterpret_cast<const char*>(data), size}, *ops);
  if (graph.is_ok()) {
    const std::string text = reprise::print(*graph);
    auto again = reprise::parse_graph(text, *ops);
    if (!again.is_ok() || reprise::print(*again) != text) std::abort();
  }
  return 0;
}
