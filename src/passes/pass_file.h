// Rewrites written as text and loaded at run time (--pass-file), so that a fusion needs no build. docs/add-a-fusion.md
// explains the form:
//
//   rewrite "name" {
//     variable $eps = 0.0123
//     search graph "a" { ... return y=%3 }
//     replace graph "b" { ... return y=%1 }
//   }
//
// Graphs are the IR's own text. A variable may stand for an attribute's value or a constant size; its value here is an
// example and must be unusual, because everything in the search graph that equals it is the variable. Types are
// examples as well. Inputs and outputs of the two graphs go together by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/fused.h"
#include "passes/rewrite.h"

namespace reprise {

// The file's text, read once where settings are: programs and the keys of their plans are made of the same one.
struct PassFile {
  std::string path, text;

  static Result<PassFile> read(const std::string& path);
};

// Errors name the line and column.
Result<std::vector<Rewrite>> parse_rewrites(std::string_view text, const OpRegistry& ops);

// The same with ops of their own, as extensions declare them (docs/add-an-extension.md):
//
//   op "name(Tensor x, *, float eps) -> Tensor" {
//     doc "what it computes"
//     variable $eps = 0.0123
//     meaning graph "a" { ... return y=%3 }
//   }
//
// The meaning's inputs are named as the operands, the variables as the attributes; results are in order.
struct Declarations {
  std::vector<nn::FusedOp> ops;
  std::vector<Rewrite> rewrites;
};
// Adds the ops to the registry as it goes, so that what follows in the text may use them; an error leaves it half done.
Result<Declarations> parse_declarations(std::string_view text, OpRegistry& ops);

}  // namespace reprise
