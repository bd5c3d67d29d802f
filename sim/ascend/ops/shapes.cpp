// Operators that only move elements: Permute, Cat, Slice.
#include <algorithm>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

void move(const View& from, const View& to) {
  if (from.dtype == to.dtype) {
    copy_elements(from, to);
  } else if (is_float(from.dtype)) {
    write(to, read<double>(from));
  } else {
    write(to, read<int64_t>(from));
  }
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnPermuteGetWorkspaceSize(Tensor self, Ints dims, TensorRef out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  Operator op("aclnnPermute", workspaceSize, executor);
  const Slot x = op.in("self", self);
  const Dims asked = op.ints("dims", dims, true);
  const Slot y = op.out("out", out);
  if (!op.ok()) return op.status();
  Dims axes, seen, expected;
  for (const int64_t dim : asked) axes.push_back(axis_of(dim, op[x].rank()));
  seen = axes;
  std::sort(seen.begin(), seen.end());
  bool all = static_cast<int64_t>(axes.size()) == op[x].rank();
  for (size_t i = 0; all && i < seen.size(); ++i) all = seen[i] == static_cast<int64_t>(i);
  if (!op.valid(all, "dims " + text_of(asked) + " are not each dimension of self once")) return op.status();
  for (const int64_t axis : axes) expected.push_back(op[x].dim(axis));
  op.same_dtype(y, x);
  op.shape(y, expected);
  return op.finish(Unit::Vector, 0, [=](const Operands& v) {
    View turned = v[x];
    for (size_t i = 0; i < axes.size(); ++i) {
      turned.shape[i] = v[x].shape[static_cast<size_t>(axes[i])];
      turned.strides[i] = v[x].strides[static_cast<size_t>(axes[i])];
    }
    copy_elements(turned, v[y]);
  });
}
ACLNN_PHASE2(aclnnPermute);

aclnnStatus aclnnCatGetWorkspaceSize(Tensors tensors, int64_t dim, TensorRef out, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  Operator op("aclnnCat", workspaceSize, executor);
  const std::vector<Slot> parts = op.list("tensors", tensors, Walk::Packed, true);
  const Slot y = op.out("out", out);
  op.attributes({dim});
  op.valid(!parts.empty(), "tensors is an empty list");
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[parts[0]].rank());
  if (!op.valid(axis >= 0 && op[parts[0]].rank() > 0, "dim " + std::to_string(dim) + " is none of the tensors'")) {
    return op.status();
  }
  Dims expected = op[parts[0]].shape;
  int64_t total = 0;
  aclDataType dtype = op[parts[0]].dtype;
  for (const Slot part : parts) {
    dtype = promoted(dtype, op[part].dtype);
    total += op[part].dim(axis);
    Dims like = op[part].shape;
    if (like.size() == expected.size()) like[static_cast<size_t>(axis)] = expected[static_cast<size_t>(axis)];
    op.valid(like == expected, text_of(op[part].shape) + " and " + text_of(expected) + " differ beside dim");
  }
  expected[static_cast<size_t>(axis)] = total;
  op.shape(y, expected);
  op.valid(op[y].dtype == dtype, "out is " + name_of(op[y].dtype) + " but the tensors make " + name_of(dtype));
  return op.finish(Unit::Vector, 0, [=](const Operands& v) {
    int64_t start = 0;
    for (const Slot part : parts) {
      View window = v[y];
      window.shape = v[part].shape;
      window.offset += start * v[y].strides[static_cast<size_t>(axis)];
      move(v[part], window);
      start += v[part].dim(axis);
    }
  });
}
ACLNN_PHASE2(aclnnCat);

// Ends are clamped as in torch.
aclnnStatus aclnnSliceGetWorkspaceSize(Tensor self, int64_t dim, int64_t start, int64_t end, int64_t step,
                                       TensorRef out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnSlice", workspaceSize, executor);
  const Slot x = op.in("self", self), y = op.out("out", out);
  op.attributes({dim, start, end, step});
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[x].rank());
  op.valid(axis >= 0 && op[x].rank() > 0, "dim " + std::to_string(dim) + " is none of self's");
  op.valid(step > 0, "step is " + std::to_string(step) + "; it must be positive");
  op.same_dtype(y, x);
  if (!op.ok()) return op.status();
  const int64_t size = op[x].dim(axis);
  const auto clamp = [size](int64_t value) { return std::clamp<int64_t>(value < 0 ? value + size : value, 0, size); };
  const int64_t first = clamp(start), last = std::max(first, clamp(end));
  Dims expected = op[x].shape;
  expected[static_cast<size_t>(axis)] = (last - first + step - 1) / step;
  op.shape(y, expected);
  return op.finish(
      Unit::Vector, 0,
      [=](const Operands& v) {
        View window = v[x];
        window.shape = v[y].shape;
        window.offset += first * v[x].strides[static_cast<size_t>(axis)];
        window.strides[static_cast<size_t>(axis)] *= step;
        copy_elements(window, v[y]);
      },
      2 * op[y].bytes());
}
ACLNN_PHASE2(aclnnSlice);

}  // extern "C"
