// DerivedParam: how the loader makes a parameter that is not one tensor of the checkpoint as it stands: rows of several
// tensors one after another, each part by a recipe. Passes write it (packing, quantisation), the plan cache keeps it,
// weights/loader.cpp carries it out. Plain values. All sizes of a parameter but the last count as rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"

namespace reprise {

// Rows of a parameter, and elements of one of them: a vector's elements are rows.
inline int64_t rows_of(const Shape& s) {
  int64_t n = 1;
  for (int i = 0; i + 1 < s.rank() || i == 0; ++i) n *= s[i].factor;
  return n;
}
inline int64_t width_of(const Shape& s) { return s.rank() == 1 ? 1 : s.back().factor; }

enum class Recipe : uint8_t {
  Converted,      // the tensor in the parameter's dtype: floats are rounded, integers stay as they are
  Transposed,     // likewise; row r of the part is column r of rows [first, first + columns) of the tensor
  StoredBlocks,   // u8: the bytes of every row as the file has them; the parameter is as wide as such a row
  QuantisedRows,  // i8: row / scale rounded half to even, -127 to 127, where scale = max|row| / 127; from floats
  RowScales,      // f32: those scales
  Numbers,        // numbers of any type in the parameter's dtype; a single number serves all rows
  Reciprocals,    // f32: 1 / number, likewise
  DeqScales,      // f32, or int64 that holds the bits of an f32
  ScaleProducts,  // f32: number of `tensor` (one, or one a row) times the single number of `other`
  ZeroPointSums,  // i32: minus the single integer of `other` times the sum of each i8 row
  Dequantised,    // floats: i8 rows times their numbers (one, or one a row) in `other`; like Converted
  DequantisedTransposed,  // the same like Transposed
  Zeros,                  // no tensor at all
  InputScales,            // numbers that activations are divided by, out of any number type, rounded to the dtype
};
constexpr int kRecipes = static_cast<int>(Recipe::InputScales) + 1;

inline std::string_view recipe_name(Recipe r) {
  constexpr std::string_view kNames[kRecipes] = {
      "converted",   "transposed",  "stored_blocks",  "quantised_rows",  "row_scales",  "numbers",
      "reciprocals", "deq_scales",  "scale_products", "zero_point_sums", "dequantised", "dequantised_transposed",
      "zeros",       "input_scales"};
  return kNames[static_cast<int>(r)];
}

struct ParamPart {
  std::string tensor;  // of the checkpoint, by its Hugging Face name
  int64_t rows = 0;    // of the parameter; a vector's elements count as rows
  Recipe recipe = Recipe::Converted;
  int64_t columns = 0;     // K of the linear this belongs to, where the recipe or dummy weights want to know it
  std::string other = {};  // second tensor of ScaleProducts, ZeroPointSums and Dequantised
  // Some rows: from `first` on of the tensor's `of` (0: the part has all of them).
  int64_t first = 0, of = 0;
  // On a rank that has a share of the part: `rows` from `from` on of the `whole` (0: all of them) that are described
  // above.
  int64_t from = 0, whole = 0;
  // On a rank that has a share of the columns: those from `column` on of the `all_columns` (0: all of them) of each row
  // that is described above.
  int64_t column = 0, all_columns = 0;

  int64_t all_rows() const { return whole ? whole : rows; }
  bool operator==(const ParamPart&) const = default;
};

// The parts of a parameter that nothing else describes, by its name (nn/param_name.h).
std::vector<ParamPart> parts_of_name(const std::string& name, const Shape& shape);

struct DerivedParam {
  std::string name;
  std::vector<ParamPart> parts;
  bool elsewhere = false;  // no parameter of this rank: other ranks hold what these parts read
  bool operator==(const DerivedParam&) const = default;
};

}  // namespace reprise
