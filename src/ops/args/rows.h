// One row of the table of op_args.h, from the op's struct; for the files that fill the structs.
//
// A file defines `fill` of each of its structs and lists rows like
//   op_row("rms_norm", &RmsNormArgs::out, &RmsNormArgs::x, constant_rows)
// with the last result, the operand that entries' dtypes are about, and what every kernel wants of a call.
#pragma once

#include "device/thunk.h"
#include "ops/args/op_args.h"

namespace reprise {

template <class A, class M>
int place_in(M A::*member) {
  const A a{};
  return static_cast<int>((reinterpret_cast<const char*>(&(a.*member)) - reinterpret_cast<const char*>(&a)) /
                          static_cast<ptrdiff_t>(sizeof(void*)));
}

template <class A, class Typed>
OpArgs op_row(std::string_view op, Out A::*last, Typed A::*typed, Status (*accepts)(const OpCall&) = nullptr) {
  static_assert(std::is_same_v<Typed, In> || std::is_same_v<Typed, Out>);
  const auto bind = [](const OpCall& c, LaunchArgs& args) { args.as<A>().fill(c); };
  return {op, bind, place_in(last) + 1, place_in(typed), -1, accepts};
}
template <class A, class Typed, class Other>
OpArgs op_row(std::string_view op, Out A::*last, Typed A::*typed, Other A::*other,
              Status (*accepts)(const OpCall&) = nullptr) {
  OpArgs row = op_row(op, last, typed, accepts);
  row.other = place_in(other);
  return row;
}

// The row of an op without results; `last` is its last operand.
template <class A>
OpArgs hint_row(std::string_view op, In A::*last) {
  const auto bind = [](const OpCall& c, LaunchArgs& args) { args.as<A>().fill(c); };
  return {op, bind, place_in(last) + 1, 0, -1, nullptr};
}

// Sizes of the first operand behind the first one.
inline Status constant_rows(const OpCall& c) { return want_constant_rows(c, 0); }

std::span<const OpArgs> element_args();
std::span<const OpArgs> norm_args();
std::span<const OpArgs> quantise_args();
std::span<const OpArgs> rotation_args();
std::span<const OpArgs> product_args();
std::span<const OpArgs> attention_args();
std::span<const OpArgs> expert_args();
std::span<const OpArgs> collective_args();
std::span<const OpArgs> draw_args();
std::span<const OpArgs> lora_args();
std::span<const OpArgs> encoder_args();
std::span<const OpArgs> recurrent_args();

}  // namespace reprise
