// RowRanges: the name of a parameter that is several ranges of rows of every group of rows of a tensor, as projections
// are stored that have what belongs to one head side by side:
//
//   "in_proj.weight@0+8,8+8,16+24/64"  of every 64 rows those: the first range of all groups, then the second, ...
//
// One range alone is a name of nn/param_name.h. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reprise::nn {

struct RowRange {
  int64_t first = 0, rows = 0;
};

struct RowRanges {
  std::string tensor;
  std::vector<RowRange> ranges;  // two or more
  int64_t of = 0;

  std::string text() const;
};

std::optional<RowRanges> parse_row_ranges(const std::string& name);

// The tensor of the checkpoint that a parameter is some rows of, or its own name.
std::string tensor_of_param(const std::string& name);

}  // namespace reprise::nn
