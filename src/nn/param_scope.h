// ParamScope: a path into the checkpoint's parameters. Model code walks it as it walks the modules of the paper:
// `scope / "layers" / 3 / "mlp"`; parameters carry their checkpoint names and nothing else. A plain value.
#pragma once

#include <string>
#include <string_view>

#include "graph/tracer.h"

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

  // The tensor "<path>.<leaf>" with the model's dtype.
  Tensor param(std::string_view leaf, Shape shape) const {
    return tracer_->param(path_ + "." + std::string(leaf), TensorType{dtype_, shape});
  }
  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }

 private:
  Tracer* tracer_;
  DType dtype_;
  std::string path_;
};

}  // namespace reprise::nn
