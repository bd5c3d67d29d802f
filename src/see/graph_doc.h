// GraphDoc: a graph as plain data: what a dump says, without op schemas or types that compute.
//
// It is read from IR text or from a JSON dump, also of another build or with ops this one does not know, and is what
// `graph diff` and the HTML report work on. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::see {

struct DocValue {
  uint32_t id = 0;
  std::string type;  // "bf16[T, 48]"
};

struct DocNode {
  static constexpr int kNoLayer = -1;
  static constexpr std::string_view kInputOp = "input", kParamOp = "param";

  std::string op;
  std::vector<DocValue> out;
  std::vector<uint32_t> in;
  std::vector<std::pair<std::string, std::string>> attrs;  // values as the IR prints them
  std::string made_by;
  std::string stream;           // "side", "prefetch"; empty: the main one
  std::vector<uint32_t> waits;  // launches of other streams that it starts behind, by their first results
  int layer = kNoLayer;         // of the model, guessed from the names of parameters and caches

  // A dump has the names of ops and none of their traits.
  bool is_param() const { return op == kParamOp; }
  bool is_source() const { return op == kInputOp || is_param(); }
  // The name attribute without its quotes; empty when there is none.
  std::string name() const;
};

struct GraphDoc {
  std::string name;
  std::vector<std::pair<std::string, int64_t>> symbols;  // with bounds
  std::vector<DocNode> nodes;
  std::vector<std::pair<std::string, uint32_t>> outputs;

  // Filled by finish_doc().
  struct Definition {
    size_t node = 0, result = 0;
  };
  std::unordered_map<uint32_t, Definition> def;
};

// IR text, as `graph dump` and --dump-dir write it. Errors name the line.
Result<GraphDoc> doc_from_text(std::string_view text);
// The "nodes", "symbols" and "outputs" of a JSON dump.
Result<GraphDoc> doc_from_json(const OrderedJson& json);
// Either, by its first character.
Result<GraphDoc> doc_from(std::string_view text, std::string_view source);

// The first number that stands alone between dots: 3 in "model.layers.3.mlp.up_proj.weight"; kNoLayer without one.
int layer_in(std::string_view name);
// The same name with "*" for that number.
std::string without_layer(const std::string& name);

}  // namespace reprise::see
