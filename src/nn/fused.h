// FusedOp: an op declared once by what it means in smaller ops. The meaning is the pattern that a rewrite looks for,
// the fallback of a device without a kernel, the answer key of the kernel's tests and the documentation.
//
// FusedOps is the list of them, a plain value made by fused_ops(); the code that needs it owns a copy. Read-only after
// it is made, usable from any thread.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/tracer.h"

namespace reprise::nn {

// Operand types and attributes on which a meaning can be traced. The values of the attributes must be unusual and
// distinct: where the trace has an equal attribute, or an equal constant size in case of an int, a pattern reads that
// attribute.
struct FusedExample {
  std::vector<Symbol> symbols;  // number i + 1 in `in`
  std::vector<TensorType> in;   // optional operands at the end may be left out
  Attrs attrs;
};

// Traces the op in smaller ops. `in` has one entry per declared operand (absent ones included); `attrs` is complete.
using Meaning = std::function<std::vector<Tensor>(std::span<const Tensor> in, const Attrs& attrs)>;

struct FusedOp {
  std::string decl;  // as in ops/schema.h
  std::string doc;
  Meaning meaning;
  std::vector<FusedExample> examples;  // one per variant of the trace: with and without optional operands, ...
  // It works on keys and values in caches of their own, so it is looked for once the joined ones are split.
  bool split_caches = false;

  std::string_view name() const { return std::string_view(decl).substr(0, decl.find('(')); }
};

class FusedOps {
 public:
  // The list of operations is small; names are unique.
  void add(FusedOp op);
  const FusedOp* find(std::string_view name) const;
  const std::vector<FusedOp>& all() const { return ops_; }  // in the order they were added: largest first

 private:
  std::vector<FusedOp> ops_;
};

FusedOps fused_ops();

// Adds schemas whose shape function traces the meaning. Ops that the registry knows already are left alone, so everyone
// who needs them may call this. The registry must keep its address.
void register_fused_ops(OpRegistry& ops);
void register_fused_op(OpRegistry& ops, const FusedOp& op);

// Traces `meaning` for operands of the given types. Inputs are named "0", "1", ...; outputs as well.
Result<Graph> trace_meaning(const Meaning& meaning, size_t operands, std::span<const Symbol> symbols,
                            std::span<const TensorType> in, const Attrs& attrs, const OpRegistry& ops);

}  // namespace reprise::nn
