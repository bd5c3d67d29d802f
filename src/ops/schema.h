// OpSchema and OpRegistry: what an op is, apart from how any device computes it.
//
// A schema is one declaration line and a shape function:
//   "kv_write(Cache(a!) kv, Tensor k, Tensor v, Index slots) -> Tensor(a)"
//   "linear(Rows x, Weight weight, Tensor? bias, *, str out = same, str shard = none) -> Tensor : linear"
//   "prefetch(Tensor param, *, int first, int bytes) -> () : hint"
// The word before an operand's name is its role (OperandRole). (a!) marks an operand that the op writes and which
// result continues it. A "Tensor? name" operand may be left out at the end. Attribute types: int, float, str, floats;
// "= value" gives a default. Behind the colon stand traits of the whole op (op_trait).
//
// Passes, the binder, the engine and the tools take every fact about ops from here: they ask for roles and traits, and
// compare no names (`./dev check ops`). A pass that rewrites one op into another looks both up in the registry.
//
// A registry is filled by plain functions at start-up and read-only afterwards; schemas keep their address for its
// lifetime, so nodes point at them.
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
  std::string_view param_layout;  // how the device stores this op's Weight or Table, once chosen
};

// What holds for every call of an op. In the declaration line each has the word of kTraitWords.
namespace op_trait {
constexpr uint32_t kCommutes = 1;      // the first two operands may be swapped
constexpr uint32_t kSplitPoint = 2;    // piecewise graphs are cut here
constexpr uint32_t kInput = 4;         // staged by the engine before each step: no operands, type given at creation
constexpr uint32_t kParam = 8;         // a tensor of the checkpoint: no operands, type given at creation
constexpr uint32_t kView = 16;         // the result is operand 0 under another shape: no kernel, same bytes
constexpr uint32_t kOwnBytes = 32;     // the result shares its bytes with no other value: equal calls stay apart
constexpr uint32_t kLinear = 64;       // column n of the result comes of row n of the Weight (of a matrix of it) and of
                                       // entry n of every operand behind that; what stands before it is shared
constexpr uint32_t kRoutes = 128;      // which weights a row meets depends on values: a rounding may send it elsewhere
constexpr uint32_t kDeviceForm = 256;  // added for some device, as an operand in its form; others need no kernel for it
constexpr uint32_t kCollective =
    512;  // all ranks run it together: never dropped, moved past another or made twice on some
constexpr uint32_t kColumns = 1024;  // column n of the result comes of column n of the operands with as many columns
constexpr uint32_t kVectors = 2048;  // vectors along the last size are worked on alone: in [T, H, D] head by head
constexpr uint32_t kHeads = 4096;    // head h comes of head h of the operands in three sizes, of matrix h of a Weight,
                                     // of number h of a Tensor in one size, and of the cache's head for its group
constexpr uint32_t kHint = 8192;     // computes nothing and has no result: only worth its place beside other launches
constexpr uint32_t kDispatches = 1 << 14;  // sorts the choices of operand 0 by what is chosen: result 0 is the row that
                                           // each place reads, result 1 the place of every choice, result 2 the borders
constexpr uint32_t kCombines = 1 << 15;  // row t of the result is a sum of rows of operand 0, weighted by operand 1, at
                                         // the places of operand 2
constexpr uint32_t kGathers = 1 << 16;   // row r of the result is that row of operand 0 which operand 1 names
constexpr uint32_t kRowScales = 1 << 17;  // result 0 is operand 0 in steps of result 1, a number that each row's own
                                          // columns decide: of some columns it is another one
constexpr uint32_t kAttends = 1 << 18;    // rows of queries meet keys, and the result is a weighted sum of values, all
                                          // in three sizes: of what the Caches hold, else of operands 1 and 2
constexpr uint32_t kExpands = 1 << 19;    // what the Caches hold of a token is multiplied with every Weight first
constexpr uint32_t kDivides = 1 << 20;    // deals the sequences of a step out to those ops that read its results
constexpr uint32_t kCorrects = 1 << 21;   // what a key finds in a state decides what is added there
constexpr uint32_t kSource = kInput | kParam;  // either
}  // namespace op_trait

// What an operand is to its op. The declaration line has the name of the role where others have "Tensor".
enum class OperandRole : uint8_t {
  Tensor,  // nothing is said
  Rows,    // read row by row: row i of the only result comes of row i of all such operands. An op that could say so and
           // does not is passed over by passes that gather rows early
  Weight,  // a matrix, or a stack of them, whose rows x is multiplied with: a device may store a parameter here in a
           // layout of its own
  Table,   // rows that an Index operand names, all that is read of it; layouts as for Weight
  Cache,   // what is kept from step to step: the first size counts pages of the pool, or slots of states
  Index,   // integers that point somewhere: i32 or i64, whichever a device's kernels take
  Starts,  // likewise; the first row of each group of rows, and where the last group ends
  Slots,   // likewise; the slot of each sequence in a Cache of states: of the first such operand it is read, of the
           // second it is written
};

struct OperandSchema {
  std::string name;
  OperandRole role = OperandRole::Tensor;
  bool optional = false;
  bool mutated = false;  // (a!)

  bool is_index() const {
    return role == OperandRole::Index || role == OperandRole::Starts || role == OperandRole::Slots;
  }
  // Whether a device may store a parameter here its own way (KernelEntry::param_layouts).
  bool has_own_layout() const { return role == OperandRole::Weight || role == OperandRole::Table; }
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
  uint32_t traits = 0;
  InferFn infer;
  std::string doc;  // one line: what it computes, with shapes

  // Whether it has this trait, or one of these.
  bool has(uint32_t trait) const { return (traits & trait) != 0; }
  bool has(OperandRole role) const { return first(role) < operands.size(); }
  // Index of the first operand of that role; operands.size() without one.
  size_t first(OperandRole role) const;
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
  const OpSchema& add(std::string_view decl, InferFn infer, std::string_view doc);
  // Also by a name that the op had before (renamed()).
  const OpSchema* find(std::string_view name) const;
  // Text passes and graph texts that were written for the old name go on working; graphs print the new one.
  void renamed(std::string_view from, std::string_view to);
  std::vector<const OpSchema*> all() const;  // by name

 private:
  std::unordered_map<std::string, std::unique_ptr<OpSchema>> schemas_;
  std::unordered_map<std::string, std::string> former_;  // old name -> name
};

}  // namespace reprise
