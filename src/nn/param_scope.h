// ParamScope: a path into the checkpoint's parameters. Model code walks it as it walks the modules of the paper:
// `scope / "layers" / 3 / "mlp"`; parameters carry their checkpoint names and nothing else. A plain value.
#pragma once

#include <string>
#include <string_view>

#include "graph/tracer.h"
#include "nn/param_name.h"

namespace reprise::nn {

class ParamScope {
 public:
  ParamScope(Tracer& tracer, DType dtype) : tracer_(&tracer), dtype_(dtype) {}

  ParamScope operator/(std::string_view part) const {
    ParamScope s = *this;
    s.path_ = path_.empty() ? std::string(part) : path_ + "." + std::string(part);
    return s;
  }
  ParamScope operator/(int64_t index) const { return *this / std::to_string(index); }

  // The tensor "<path>.<leaf>" with the model's dtype, or another one.
  Tensor param(std::string_view leaf, Shape shape) const { return param(leaf, shape, dtype_); }
  Tensor param(std::string_view leaf, Shape shape, DType dtype) const {
    return tracer_->param(path_ + "." + std::string(leaf), TensorType{dtype, shape});
  }
  // The tensors "<path>.<i>.<leaf>" for i in [from, to), stacked: shape is [to - from, N, K].
  Tensor stacked(int64_t from, int64_t to, std::string_view leaf, Shape shape) const {
    ParamName name;
    name.tensor = path_ + ".{}." + std::string(leaf);
    name.from = from;
    name.to = to;
    return tracer_->param(name.text(), TensorType{dtype_, shape});
  }
  // The rows of every `of` rows of "<path>.<leaf>" from `first` on, each group a matrix [rows, K], or [K, rows]
  // transposed; shape is that of all of them.
  Tensor row_groups(std::string_view leaf, int64_t first, int64_t rows, int64_t of, bool transposed,
                    Shape shape) const {
    const ParamName name{path_ + "." + std::string(leaf), 0, 1, first, rows, of, transposed};
    return tracer_->param(name.text(), TensorType{dtype_, shape});
  }
  // Rows [first, first + rows) of the `of` rows of "<path>.<leaf>": one of several matrices that a checkpoint has in
  // one tensor. shape is [rows, K].
  Tensor rows(std::string_view leaf, int64_t first, int64_t rows, int64_t of, Shape shape) const {
    return row_groups(leaf, first, rows, of, false, shape);
  }
  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }

 private:
  Tracer* tracer_;
  DType dtype_;
  std::string path_;
};

}  // namespace reprise::nn
