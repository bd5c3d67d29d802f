// Streams of a graph: what its launches touch, in which order several streams run them, and the fewest waits that keep
// every dependency in order.
//
// A launch follows all launches before it on its own stream and what it waits for (Node::waits); nothing else orders
// two launches. With all nodes on the main stream that is the order of the list. Plain functions and values; they hold
// for the graph as it was when they were made.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace reprise {

// Bytes that a launch reads or writes: all that lies behind a storage root.
struct StorageTouch {
  const Value* root = nullptr;
  bool write = false;
};
// Those of one launch, without parameters, which nothing writes. A view is no launch and touches nothing.
std::vector<StorageTouch> storage_touches(const Node& node);

bool has_side_streams(const Graph& graph);

// Per stream: all its nodes with numbers up to this one are done; -1: none. A node's number is its place in the list.
using StreamClock = std::array<int64_t, kMaxGraphStreams>;

class StreamClocks {
 public:
  // `one_stream`: as if all launches were on the main one.
  explicit StreamClocks(const Graph& graph, bool one_stream = false);

  int64_t number(const Node* node) const { return at_.at(node).number; }
  // What is done when the node begins.
  const StreamClock& before(const Node* node) const { return at_.at(node).before; }
  // What is done when the node is.
  StreamClock after(const Node* node) const;

 private:
  struct At {
    int64_t number = 0;
    uint8_t stream = kMainStream;
    StreamClock before{};
  };
  std::unordered_map<const Node*, At> at_;
};

// Gives every launch the fewest waits with which all that touch the same storage, one of them writing, run in the order
// of the list. Streams are taken as they are.
void set_waits(Graph& graph);

}  // namespace reprise
