// Launch arguments of matrix products and of what is fused with them.
//
// Rows x [rows, depth] times a weight [columns, depth]; of experts and heads a stack of such weights. Operands that are
// left out are null. Where `format` stands, the weight lies in GGUF blocks, and with `int8_activations` x is rounded to
// int8 by blocks of 32. Filled in products.cpp.
#pragma once

#include "device/thunk.h"

namespace reprise {

struct OpCall;
enum class DType : uint8_t;
enum class BlockFormat : uint8_t;

struct ProductShape {
  Dim rows;
  int64_t depth, columns;
};

struct LinearArgs {
  In x, weight, bias;
  Out out;
  ProductShape shape;
  DType type, out_type;

  void fill(const OpCall& call);
};

struct LinearAddArgs {
  In x, weight, residual, bias;
  Out out;
  ProductShape shape;

  void fill(const OpCall& call);
};

// shape.columns: of the weight, gate rows and then up rows; a row of the result has half as many numbers.
struct LinearSiluMulArgs {
  In x, weight;
  Out out;
  ProductShape shape;

  void fill(const OpCall& call);
};

struct LmHeadArgs {
  In x, weight;
  Out out;
  ProductShape shape;

  void fill(const OpCall& call);
};

struct LinearBlocksArgs {
  In x, weight, bias;
  Out out;
  ProductShape shape;
  BlockFormat format;
  bool int8_activations;

  void fill(const OpCall& call);
};

struct LmHeadBlocksArgs {
  In x, weight;
  Out out;
  ProductShape shape;
  BlockFormat format;
  bool int8_activations;

  void fill(const OpCall& call);
};

struct EmbeddingBlocksArgs {
  In table, ids;
  Out out;
  Dim tokens;
  int64_t width, vocabulary;
  BlockFormat format;

  void fill(const OpCall& call);
};

struct LinearW8a8StaticArgs {
  In x, weight, scale, bias, add;
  Out out;
  ProductShape shape;
  DType out_type;

  void fill(const OpCall& call);
};

struct LinearW8a8DynamicArgs {
  In x, x_scale, weight, scale, add;
  Out out;
  ProductShape shape;
  DType out_type;

  void fill(const OpCall& call);
};

struct LmHeadW8a8Args {
  In x, x_scale, weight, scale;
  Out out;
  ProductShape shape;

  void fill(const OpCall& call);
};

// Every head of x [rows, heads, depth] by its own weight; of some rows only.
struct PerHeadMatmulArgs {
  In x, weight;
  Out out;
  ProductShape shape;
  int64_t heads;
  DType type;

  void fill(const OpCall& call);
};

struct PerHeadMatmulRowsArgs {
  In x, list, weight;
  Out out;
  ProductShape shape;
  int64_t heads;

  void fill(const OpCall& call);
};

// Rows in groups, each group by its own weight; `rows` are those of the result.
struct GroupedLinearArgs {
  In x, starts, weight;
  Out out;
  ProductShape shape;
  int64_t groups;
  DType type;

  void fill(const OpCall& call);
};

// Row r is row token[r] of x, which has x_rows.
struct GroupedLinearRowsArgs {
  In x, token, starts, weight;
  Out out;
  ProductShape shape;
  int64_t groups;
  Dim x_rows;

  void fill(const OpCall& call);
};

struct GroupedLinearBlocksArgs {
  In x, starts, weight;
  Out out;
  ProductShape shape;
  int64_t groups;
  BlockFormat format;
  bool int8_activations;

  void fill(const OpCall& call);
};

struct GroupedW8a8StaticArgs {
  In x, starts, weight, scale, bias;
  Out out;
  ProductShape shape;
  int64_t groups;
  DType out_type;

  void fill(const OpCall& call);
};

struct GroupedW8a8DynamicArgs {
  In x, x_scale, starts, weight, scale;
  Out out;
  ProductShape shape;
  int64_t groups;
  DType out_type;

  void fill(const OpCall& call);
};

struct GroupedSiluMulQuantArgs {
  In x, x_scale, starts, weight, scale;
  Out values, values_scale;
  ProductShape shape;
  int64_t groups;

  void fill(const OpCall& call);
};

}  // namespace reprise
