// Launch arguments of the ops that work number by number, and of those that copy or pick rows of bytes, of sampling.
//
// `rows` of `width` numbers are the tensor; sizes behind the first are constants (op_args.h has the guards). Operands
// come first, as the schema names them; sizes count elements unless they say bytes. Plain data that every kernel
// compiler reads, so nothing but thunk.h is included. How each is filled from a call: elements.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;

// add, mul
struct BinaryArgs {
  In a, b;
  Out out;
  Dim rows;
  int64_t width;
  DType type;

  void fill(const OpCall& call);
};

// silu, gelu, gelu_tanh, relu_squared, sigmoid, reciprocal; argmax and finite_rows, whose result has a number for every
// row
struct UnaryArgs {
  In x;
  Out out;
  Dim rows;
  int64_t width;
  DType type;

  void fill(const OpCall& call);
};

// scale, softcap: elementwise with the op's number
struct NumberArgs {
  In x;
  Out out;
  Dim rows;
  int64_t width;
  double number;
  DType type;

  void fill(const OpCall& call);
};

// Elementwise, with two numbers.
struct SwigluClampedArgs {
  In gate, up;
  Out out;
  Dim rows;
  int64_t width;
  double alpha, limit;

  void fill(const OpCall& call);
};

// Draws a token for each row of logits [rows, columns] by its Draw (ops/draw.h), which may name a row of `edited`.
struct SampleArgs {
  In logits, draws, edited;
  Out token, logprob, top_tokens, top_logprobs;
  Dim rows;
  int64_t columns;

  void fill(const OpCall& call);
};

// Rows of logits [, columns] by the LogitEdit of each (ops/logit_edit.h).
struct MaskLogitsArgs {
  In logits, edits, words;
  Out out;
  Dim rows;
  int64_t columns;

  void fill(const OpCall& call);
};

// copy of any type; where another size than the first has a symbol, `rows` has it
struct CopyArgs {
  In x;
  Out out;
  Dim rows;
  int64_t width;
  int64_t element;  // bytes
  DType type;

  void fill(const OpCall& call);
};

struct SliceArgs {
  In x;
  Out out;
  Dim rows;
  int64_t width, begin, size;
  int64_t element;  // bytes
  DType type;

  void fill(const OpCall& call);
};

// rows and embedding: row index[r] of x
struct IndexSelectArgs {
  In x, index;
  Out out;
  Dim x_rows, rows;
  int64_t width;
  int64_t element;  // bytes
  DType type;

  void fill(const OpCall& call);
};

// `width` is that of the result
struct SiluMulArgs {
  In gate_up;
  Out out;
  Dim rows;
  int64_t width;
  DType type;

  void fill(const OpCall& call);
};

// prefetch: so many bytes from byte `first` of the parameter on
struct PrefetchArgs {
  In param;
  int64_t first, bytes;

  void fill(const OpCall& call);
};

struct ScaleRowsArgs {
  In x, scale;
  Out out;
  Dim rows;
  int64_t width;
  DType type;

  void fill(const OpCall& call);
};

}  // namespace reprise
