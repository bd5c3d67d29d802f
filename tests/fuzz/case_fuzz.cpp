// Cases of `graph verify --case`: no report crashes the reader; what is taken keeps its limits, and written and read
// again it is the same.
#include <cstdint>
#include <cstdlib>

#include "engine/replay_case.h"

using reprise::engine::ReplayCase;

namespace {

void demand(bool holds) {
  if (!holds) std::abort();
}

std::string written(const ReplayCase& c) {
  reprise::OrderedJson list = reprise::OrderedJson::array();
  for (const auto& p : c.sequences)
    list.push_back({{"tokens", p.tokens},
                    {"cached", p.cached},
                    {"count", p.count},
                    {"logits", p.all ? "all" : "last"},
                    {"drafts", p.drafts}});
  return reprise::OrderedJson{{"sequences", list}}.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto c = reprise::engine::parse_case({reinterpret_cast<const char*>(data), size}, "input");
  if (!c.is_ok()) {
    demand(c.status().message().starts_with("input: "));
    return 0;
  }
  for (const auto& p : c->sequences) {
    demand(p.cached >= 0 && p.count >= 1 && p.cached + p.count <= static_cast<int64_t>(p.tokens.size()));
    for (const int32_t t : p.tokens) demand(t >= 0);
  }
  const auto again = reprise::engine::parse_case(written(*c), "input");
  demand(again.is_ok() && written(*again) == written(*c));
  // What an engine with these limits may be asked to run.
  const reprise::engine::CaseLimits limits{100, 40, 20, 8};
  if (!check_case(*c, limits, "input").is_ok()) return 0;
  int64_t tokens = 0;
  for (const auto& p : c->sequences) {
    tokens += p.count;
    demand(p.cached + p.count <= limits.context);
    for (int64_t t = 0; t < p.cached + p.count; ++t) demand(p.tokens[static_cast<size_t>(t)] < limits.vocabulary);
  }
  demand(tokens <= limits.step_tokens && static_cast<int64_t>(c->sequences.size()) <= limits.step_rows);
  return 0;
}
