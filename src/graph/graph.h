// Graph: a traced model as typed SSA.
//
// A Graph owns Nodes (op calls, in program order) and their Values. Every value knows the node that made it and exactly
// who uses it, so rewrites are local; every node knows what made it ("trace" or a rewrite's name). Sizes may be symbols
// with an upper bound ("T <= 2048"). A graph has one owner and is changed by one thread; a finished graph may be read
// by any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shape.h"
#include "base/status.h"
#include "device/thunk.h"
#include "ops/schema.h"

namespace reprise {

struct Node;

// Streams of a recorded graph. All of a plan's nodes are on the main one unless it was made for several.
constexpr uint8_t kMainStream = 0, kSideStream = 1, kPrefetchStream = 2;
std::string_view stream_name(uint8_t stream);  // "main", "side", "prefetch"

struct Use {
  Node* user = nullptr;
  uint32_t operand = 0;
  // What the user's schema says about this operand.
  const OperandSchema& declared() const;
  bool operator==(const Use&) const = default;
};

struct Value {
  uint32_t id = 0;
  TensorType type;
  Node* def = nullptr;
  uint32_t result = 0;
  std::vector<Use> uses;
  std::vector<std::string> outputs;  // names under which the graph returns it
};

struct Node {
  const OpSchema* op = nullptr;
  std::vector<Value*> in;
  std::vector<std::unique_ptr<Value>> out;
  Attrs attrs;
  std::string made_by;
  // On which stream of a recorded graph its launch is, and the launches of other streams that it starts behind; those
  // before it on its own stream come first anyway. Set by assign_streams, after everything that changes nodes.
  uint8_t stream = kMainStream;
  std::vector<const Node*> waits;
  Node* prev = nullptr;
  Node* next = nullptr;

  Value* result(size_t i = 0) const { return out[i].get(); }
  bool is_input() const { return op->has(op_trait::kInput); }
  bool is_param() const { return op->has(op_trait::kParam); }
  bool is_source() const { return op->has(op_trait::kSource); }
  bool is_view() const { return op->has(op_trait::kView); }
  bool is_launched() const { return !is_source() && !is_view(); }
  // Nothing reads what it does: it may be left out anywhere.
  bool is_hint() const { return op->has(op_trait::kHint); }
  std::vector<TensorType> in_types() const;
  std::vector<TensorType> out_types() const;
};

// "%12", by its first result; "ahead of %3" of a hint, which has none, by what it reads.
std::string node_label(const Node& node);

inline const OperandSchema& Use::declared() const { return user->op->operands[operand]; }

struct Symbol {
  std::string name;
  int64_t bound = 0;
};

struct GraphOutput {
  std::string name;
  Value* value = nullptr;
};

class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  const std::string& name() const { return name_; }

  // Symbols are numbered from 1 in the order they are added; at most kMaxSymbols - 1.
  Result<SymbolId> add_symbol(std::string name, int64_t bound);
  const std::vector<Symbol>& symbols() const { return symbols_; }  // entry i is symbol i + 1
  // Every symbol at its bound.
  LiveSizes bounds() const;

  // Appends an op call, or inserts it before `before`. Attributes are completed with defaults and checked, result types
  // come from the shape function.
  Result<Node*> add(const OpSchema& op, std::vector<Value*> in, Attrs attrs, std::string made_by = "trace",
                    Node* before = nullptr);
  // input and param: ops without operands whose type is given.
  Result<Node*> add_source(const OpSchema& op, std::string name, TensorType type, std::string made_by = "trace",
                           Node* before = nullptr);
  // The same with the ids that a text names; used by the parser.
  Result<Node*> add_with_ids(const OpSchema& op, std::vector<Value*> in, Attrs attrs, std::vector<TensorType> types,
                             std::vector<uint32_t> ids, std::string made_by);

  Status add_output(std::string name, Value* value);
  Status remove_output(std::string_view name);
  const std::vector<GraphOutput>& outputs() const { return outputs_; }

  Node* first() const { return first_; }
  Node* last() const { return last_; }
  size_t size() const { return nodes_.size(); }
  // Null when absent.
  Node* find_input(std::string_view name) const { return find_source(op_trait::kInput, name); }
  Node* find_param(std::string_view name) const { return find_source(op_trait::kParam, name); }

  // Every use of `from`, and every output, becomes `to`.
  void replace_all_uses(Value* from, Value* to);
  void set_operand(Node* node, uint32_t operand, Value* value);
  // The node's results must be unused.
  void erase(Node* node);
  // Removes pure nodes (and unused params) whose results nothing uses; returns how many.
  int remove_dead();
  // Moves `node` directly before `before` (null: to the end).
  void move_before(Node* node, Node* before);

 private:
  Node* find_source(uint32_t trait, std::string_view name) const;
  Node* link(std::unique_ptr<Node> node, Node* before);
  void unlink(Node* node);

  std::string name_;
  std::vector<Symbol> symbols_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<GraphOutput> outputs_;
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  uint32_t next_id_ = 0;
};

// The value whose bytes `v` names: views share them, and a result that continues an operand in place has those of the
// operand.
const Value* storage_root(const Value* v);

// Whether the value is an input that lives on from step to step: some op reads it as its Cache, or writes into it.
bool is_cache(const Value& v);

// Checks every rule of the IR; the error names the node. Rules: values are defined before use; use lists are exact;
// every type is what the shape function gives; sources have unique names; a value that was written in place is not read
// under its old name afterwards; symbols exist; outputs exist and their names are unique; only launches are on a side
// stream or wait, and they wait for launches of other streams that stand before them; hints are on the prefetch stream,
// which has nothing else, and nothing waits for them. Whether the waits are enough is
// check_plan's (compile/memory_plan.h).
Status verify(const Graph& graph);

}  // namespace reprise
