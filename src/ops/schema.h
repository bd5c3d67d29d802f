// OpSchema and OpRegistry: what an op is, apart from how any device computes it.
//
// A schema is one declaration line, a few flags and a shape function:
//   "kv_write(Tensor(a!) kv, Tensor k, Tensor v, Index slots) -> Tensor(a)"
//   "rms_norm(Tensor x, Tensor weight, Tensor? bias, *, float eps) -> Tensor"
// (a!) marks an operand that the op writes and which result continues it. "Index" instead of "Tensor" is an operand of
// integers that point somewhere: i32 or i64, whichever a device's kernels take. Attribute types: int, float, str,
// floats;
// "= value" gives a default. A "Tensor? name" operand may be left out at the end. A registry is filled by plain
// functions at start-up and read-only afterwards; schemas keep their address for its lifetime, so nodes point at them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/shape.h"
#include "base/status.h"
#include "ops/attrs.h"

namespace reprise {

struct OpSchema;

// One call of an op, as shape functions and kernel entries see it.
struct OpCall {
  const OpSchema* op = nullptr;
  std::span<const TensorType> in;
  std::span<const TensorType> out;  // empty while types are being inferred
  const Attrs* attrs = nullptr;
  std::string_view param_layout;  // how the device stores this op's parameter (kParamLayout), once chosen
};

namespace op_flag {
constexpr uint32_t kNone = 0;
constexpr uint32_t kCommutes = 1;     // the first two operands may be swapped
constexpr uint32_t kSplitPoint = 2;   // piecewise graphs are cut here
constexpr uint32_t kSource = 4;       // input, param: no operands, type given at creation
constexpr uint32_t kParamLayout = 8;  // devices may store operand `weight` or `table` in a layout of their own
constexpr uint32_t kView = 16;        // the result is operand 0 under another shape: no kernel, same bytes
constexpr uint32_t kDeviceForm = 32;  // the operand as kernels of some device want it; others have no kernel for it
}  // namespace op_flag

struct OperandSchema {
  std::string name;
  bool optional = false;
  bool mutated = false;  // (a!)
  bool index = false;    // declared as Index
};

struct AttrSchema {
  std::string name;
  enum class Kind : uint8_t { Int, Float, Str, Floats } kind;
  bool has_default = false;
  AttrValue default_value;
};

// A plain function, or for fused ops one that traces their meaning (nn/fused.h).
using InferFn = std::function<Result<std::vector<TensorType>>(const OpCall&)>;

struct OpSchema {
  std::string name;
  std::string decl;
  std::vector<OperandSchema> operands;
  std::vector<AttrSchema> attrs;
  int results = 1;
  uint32_t flags = 0;
  InferFn infer;
  std::string doc;  // one line: what it computes, with shapes

  bool has(uint32_t flag) const { return (flags & flag) != 0; }
  int min_operands() const;
  // Index of the operand that result 0 continues in place, or -1.
  int mutated_operand() const;
  bool pure() const { return mutated_operand() < 0; }
};

// Parses a declaration line; the error names the column.
Result<OpSchema> parse_schema(std::string_view decl);

// Completes `attrs` with defaults in schema order and checks names and types.
Status check_attrs(const OpSchema& schema, Attrs& attrs);

class OpRegistry {
 public:
  // CHECKs that the declaration parses and the name is new: both are written by us or by an extension's author.
  const OpSchema& add(std::string_view decl, InferFn infer, uint32_t flags, std::string_view doc);
  const OpSchema* find(std::string_view name) const;
  std::vector<const OpSchema*> all() const;  // by name

 private:
  std::unordered_map<std::string, std::unique_ptr<OpSchema>> schemas_;
};

}  // namespace reprise
