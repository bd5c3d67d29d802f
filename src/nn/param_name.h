// ParamName: the name of a parameter that is not one tensor of the checkpoint. A model says by the name what has to be
// read, and the text of a graph shows it:
//
//   "layers.3.experts.{0..7}.up_proj.weight"  eight tensors, one matrix after another: [8, N, K]
//   "kv_b_proj.weight@128+64/192"             of every 192 rows the 64 from 128 on, a matrix each: [H, 64, K]
//   "kv_b_proj.weight@0+128/192T"             likewise, each matrix transposed: [H, K, 128]
//
// A plain value.
#pragma once

#include <cstdint>
#include <string>

namespace reprise::nn {

struct ParamName {
  std::string tensor;           // with "{}" where the number of a stacked tensor stands
  int64_t from = 0, to = 1;     // those numbers: [from, to)
  int64_t first = 0, rows = 0;  // rows of every group ...
  int64_t of = 0;               // ... of so many; 0: all rows
  bool transposed = false;

  std::string text() const;
  std::string tensor_of(int64_t number) const;
};

// A name in none of the forms above is a tensor's own.
ParamName parse_param_name(const std::string& name);

}  // namespace reprise::nn
