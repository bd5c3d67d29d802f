// Pattern: a small traced graph that is looked for in a large one.
//
// A pattern is the trace of a meaning on an example (nn/fused.h). Attributes and constant sizes that equal one of the
// example's attribute values are variables, bound once per match; names and floats that equal none are literal; whole
// numbers may follow from the variables and the types, so they are compared when the meaning is traced again on what
// was found. Immutable once made.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "nn/fused.h"
#include "passes/pass.h"

namespace reprise {

// An attribute's value for messages.
std::string show(const AttrValue& value);

struct Match {
  std::vector<Node*> nodes;  // in the pattern's order
  std::vector<Value*> in;    // by operand; operands the example leaves out are missing at the end
  std::vector<Value*> out;   // what the pattern returns
  Attrs attrs;               // the example's attributes with the values found
};

// How far a refused attempt came.
struct NearMiss {
  int depth = -1;  // nodes matched before it failed
  // When several attempts fail at one depth, the likelier culprit is kept: in add(linear(x, w), r) the two orders of
  // the operands fail alike, and a linear_blocks is worth naming, the residual is not.
  int likeness = 0;
  PassRemark remark;
};

class Pattern {
 public:
  static Result<Pattern> make(std::string_view name, const nn::Meaning& search, size_t operands,
                              const nn::FusedExample& example, const OpRegistry& ops);

  size_t size() const { return nodes_.size(); }
  const OpSchema* anchor_op() const { return nodes_.back()->op; }

  // Looks for the pattern with its last node at `anchor`. `accept` decides about each complete candidate; its error is
  // the reason for going on to the next one. Nullopt leaves the deepest failure in `miss`, if it is deeper than what is
  // there.
  std::optional<Match> match(Node* anchor, const std::function<Status(Match&)>& accept, NearMiss& miss) const;

 private:
  friend class Matcher;
  struct DimSite {
    int dim = 0;
    size_t variable = 0;
  };

  Graph graph_{"pattern"};
  std::vector<Node*> nodes_;  // without the inputs, in program order
  std::unordered_map<const Node*, size_t> node_index_;
  std::vector<Value*> inputs_, outputs_;
  Attrs example_;
  std::unordered_map<const AttrValue*, size_t> attr_sites_;  // attribute of a pattern node -> variable
  std::unordered_map<const Value*, std::vector<DimSite>> dim_sites_;
};

}  // namespace reprise
