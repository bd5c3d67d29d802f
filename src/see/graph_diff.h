// GraphDiff: what is different between two graphs, layer by layer.
//
// Nodes are aligned by what they are (op, attributes, types, the parameters they use), never by value numbers; values
// are then numbered anew within each layer, the same on both sides, so that numbering makes no noise and layers that
// changed alike are shown once. Who made a node and the name of the graph do not count. A plain value.
#pragma once

#include <string>
#include <vector>

#include "see/graph_doc.h"

namespace reprise::see {

struct DiffLine {
  char tag = ' ';  // ' ' on both sides, '-' only in A, '+' only in B; a changed node is a '-' and a '+' side by side
  std::string text;
  uint32_t id = 0;  // of the node's first result, in B for ' ' and '+', in A for '-'

  bool operator==(const DiffLine& other) const { return tag == other.tag && text == other.text; }
};

// Layers that look the same, or the part before the first layer or after the last.
struct DiffSection {
  std::vector<std::string> parts;                        // "start", "0", "1", ..., "end"
  std::vector<DiffLine> lines;                           // every node, also those that are the same
  int removed = 0, added = 0, changed = 0, rewired = 0;  // of one of the layers; rewired: only the operands differ

  bool same() const { return removed + added + changed + rewired == 0; }
  std::string title() const;  // "layers 1 to 26 (26 alike)"
};

struct OpCount {
  std::string op;
  int a = 0, b = 0;
};

// What is not a node: "+ param ...", "- input ...", "symbol T: 64 -> 2048".
struct DiffNote {
  char tag = ' ';  // '-', '+', or '~' for changed
  std::string text;
};

struct GraphDiff {
  size_t nodes_a = 0, nodes_b = 0;  // without parameters and inputs
  std::vector<OpCount> ops;         // by name
  std::vector<DiffNote> notes;      // symbols, inputs, parameters, outputs
  std::vector<DiffSection> sections;

  bool same() const;
};

GraphDiff diff_graphs(const GraphDoc& a, const GraphDoc& b);

// For people, `context` nodes around each difference.
std::string diff_text(const GraphDiff& diff, int context = 2);
OrderedJson diff_json(const GraphDiff& diff);

}  // namespace reprise::see
