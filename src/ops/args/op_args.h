// OpArgs: what the entries of all devices have in common for one op: how its launch arguments are filled, which operand
// an entry's dtype is about, and which calls no kernel takes.
//
// The table is static and read-only. An op of an extension, or one that no device here has a kernel of, is not in it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"
#include "ops/schema.h"

namespace reprise {

struct LaunchArgs;

struct OpArgs {
  std::string_view op;
  // Fills sizes and attributes of the op's struct; operands and results are set by number, apart from this.
  void (*bind)(const OpCall& call, LaunchArgs& args) = nullptr;
  int operands = 0;  // members that are operands or results: the struct begins with so many
  int typed = 0;     // the operand or result that an entry's dtype is about
  int other = -1;    // one that may have another type, where entries have two: a wide result, a cache of int8
  // What every kernel wants of the call: sizes that are constants, as the struct has them. Ok, or Unsupported.
  Status (*accepts)(const OpCall& call) = nullptr;
};

std::span<const OpArgs> all_op_args();
const OpArgs& op_args(std::string_view op);  // CHECKs that it is there

// The dtypes of an entry: one, or those of `typed` and `other`.
struct EntryTypes {
  constexpr EntryTypes(DType all) : typed(all), other(all) {}  // NOLINT: one dtype is the usual case
  constexpr EntryTypes(DType t, DType o) : typed(t), other(o) {}
  DType typed, other;
};
std::string entry_types_name(EntryTypes types);  // "bf16", "bf16_f32"

// The call has these types and is what OpArgs::accepts wants.
Status accepts_types(const OpArgs& op, EntryTypes types, const OpCall& call);

// Every size of operand i behind the first is a constant.
Status want_constant_rows(const OpCall& c, size_t i);
// Operand i, the table of rope_table, is as that makes it.
template <size_t kTable>
Status want_table_in_f32(const OpCall& c) {
  if (c.in[kTable].dtype == DType::F32) return Status::ok();
  return error(Code::Unsupported, "takes a table in f32, not {}", dtype_name(c.in[kTable].dtype));
}
// Sizes of a shape multiplied, [from, to); at most one has a symbol.
Dim product_of(const Shape& s, int from, int to);

}  // namespace reprise
