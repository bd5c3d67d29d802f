// TensorView: a pointer with a shape. Never owns, trivially copyable. A view of an arena is good until the arena's next
// epoch; `generation` carries the epoch for debug checks.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/dtype.h"

namespace reprise {

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::F32;
  uint8_t rank = 0;
  std::array<int64_t, 5> size{};
  std::array<int64_t, 5> stride{};  // in elements
  uint32_t generation = 0;

  // A dense row-major view.
  static TensorView dense(void* data, DType dtype, std::initializer_list<int64_t> sizes) {
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    for (int64_t s : sizes) v.size[v.rank++] = s;
    int64_t step = 1;
    for (int i = v.rank - 1; i >= 0; --i) {
      v.stride[i] = step;
      step *= v.size[i];
    }
    return v;
  }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= size[i];
    return n;
  }
};

}  // namespace reprise
