// The IR's text form: print() and parse_graph() are inverse, so that graphs can be read, compared, stored and written
// by hand. Pure functions; any thread that may read the graph. The caller owns the graph that was parsed.
//
//   graph "toy" {
//     symbol T <= 2048
//     %0: i32[T] = input(name="tokens") from "trace"
//     %1: bf16[263, 48] = param(name="model.embed_tokens.weight") from "trace"
//     %2: bf16[T, 48] = embedding(%1, %0, shard="none") from "trace"
//     return hidden=%2
//   }
//
// A launch on another stream than the main one, and what it waits for on others, stand behind its operands; a launch is
// named by its first result: "%9: bf16[T, 48] = linear(%7, %8) @side after %6 from "trace"". A hint has no result:
// "prefetch(%1, first=0, bytes=65536) @prefetch after %6 from "insert_prefetch"".
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "graph/graph.h"

namespace reprise {

std::string print(const Graph& graph);
std::string print(const Graph& graph, const TensorType& type);
// The node's line, without who made it.
std::string print(const Graph& graph, const Node& node);

// Values that a text may name as $name wherever an attribute's value or a constant size stands.
using TextVariables = std::unordered_map<std::string, AttrValue>;

// Errors name the line and column. The result has been verified.
Result<Graph> parse_graph(std::string_view text, const OpRegistry& ops, const TextVariables& variables = {});

}  // namespace reprise
