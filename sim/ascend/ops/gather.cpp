// Rows chosen by indices: Embedding, IndexSelect, GatherV2; and single numbers: Gather.
#include <cstring>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

// What the real kernels read past the end is undefined; this is a NaN in every float type.
void gather(const View& from, int64_t axis, const std::vector<int64_t>& indices, const View& to, const char* name) {
  const Split split = split_at(from.shape, axis);
  const int64_t run = split.inner * from.element();
  const char* source = at<const char>(from);
  char* target = at<char>(to);
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (const int64_t index : indices) {
      if (index < 0) throw DeviceFault(std::string(name) + ": index " + std::to_string(index) + " is negative");
      if (index >= split.size) {
        std::memset(target, 0xFF, static_cast<size_t>(run));
      } else {
        std::memcpy(target, source + (outer * split.size + index) * run, static_cast<size_t>(run));
      }
      target += run;
    }
  }
}

void gather_numbers(const View& from, int64_t axis, const View& index, const View& to) {
  const std::vector<int64_t> indices = read<int64_t>(index);
  const size_t element = static_cast<size_t>(from.element());
  const int64_t size = from.shape[static_cast<size_t>(axis)];
  const char* source = at<const char>(from);
  char* target = at<char>(to);
  std::vector<int64_t> place(index.shape.size(), 0);  // of the current number in index
  for (int64_t chosen : indices) {
    if (chosen < 0) chosen += size;
    if (chosen < 0 || chosen >= size)
      throw DeviceFault("aclnnGather: an index is not in [-" + std::to_string(size) + ", " + std::to_string(size) +
                        ")");
    int64_t offset = 0;
    for (size_t d = 0; d < place.size(); ++d)
      offset = offset * from.shape[d] + (static_cast<int64_t>(d) == axis ? chosen : place[d]);
    std::memcpy(target, source + static_cast<size_t>(offset) * element, element);
    target += element;
    for (size_t d = place.size(); d-- > 0;) {
      if (++place[d] < index.shape[d]) break;
      place[d] = 0;
    }
  }
}

int gather_phase1(const char* name, Tensor self, int64_t dim, Tensor index, Tensor out, bool any_rank, uint64_t* size,
                  aclOpExecutor** executor) {
  Operator op(name, size, executor);
  const Slot from = op.in("self", self), at_index = op.in("index", index), to = op.out("out", out);
  op.attributes({dim});
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[from].rank());
  op.dtype(at_index, {kInt32, kInt64});
  op.same_dtype(to, from);
  op.valid(op[from].rank() > 0 && axis >= 0, "dim " + std::to_string(dim) + " is none of self's");
  if (!any_rank) op.rank(at_index, 0, 1);
  if (!op.ok()) return op.status();
  Dims expected(op[from].shape.begin(), op[from].shape.begin() + axis);
  if (any_rank) {
    expected.insert(expected.end(), op[at_index].shape.begin(), op[at_index].shape.end());
  } else {
    expected.push_back(op[at_index].count());
  }
  expected.insert(expected.end(), op[from].shape.begin() + axis + 1, op[from].shape.end());
  op.shape(to, expected);
  const double bytes = 2 * op[to].bytes() + op[at_index].bytes();
  return op.finish(
      Unit::Vector, 0, [=](const Operands& v) { gather(v[from], axis, read<int64_t>(v[at_index]), v[to], name); },
      bytes);
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnEmbeddingGetWorkspaceSize(Tensor weight, Tensor indices, Tensor out, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return gather_phase1("aclnnEmbedding", weight, 0, indices, out, true, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnEmbedding);

aclnnStatus aclnnIndexSelectGetWorkspaceSize(Tensor self, int64_t dim, Tensor index, TensorRef out,
                                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return gather_phase1("aclnnIndexSelect", self, dim, index, out, false, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnIndexSelect);

aclnnStatus aclnnGatherV2GetWorkspaceSize(Tensor self, int64_t dim, Tensor index, TensorRef out,
                                          uint64_t* workspaceSize, aclOpExecutor** executor) {
  return gather_phase1("aclnnGatherV2", self, dim, index, out, true, workspaceSize, executor);
}
ACLNN_PHASE2(aclnnGatherV2);

// hicann/ops-nn index/gather_elements_v2/docs/aclnnGather_en.md: as many dimensions in index as in self, none of them
// larger but that of dim; out has index's shape and self's type; indices count from the end where they are negative.
aclnnStatus aclnnGatherGetWorkspaceSize(Tensor self, int64_t dim, Tensor index, TensorRef out, uint64_t* workspaceSize,
                                        aclOpExecutor** executor) {
  Operator op("aclnnGather", workspaceSize, executor);
  const Slot from = op.in("self", self), at_index = op.in("index", index), to = op.out("out", out);
  op.attributes({dim});
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[from].rank());
  op.valid(axis >= 0, "dim " + std::to_string(dim) + " is none of self's");
  op.dtype(at_index, {kInt32, kInt64});
  op.same_dtype(to, from);
  op.rank(at_index, op[from].rank(), op[from].rank());
  op.shape(to, op[at_index].shape);
  if (!op.ok()) return op.status();
  for (size_t d = 0; d < op[from].shape.size(); ++d)
    op.valid(static_cast<int64_t>(d) == axis || op[at_index].shape[d] <= op[from].shape[d],
             "dimension " + std::to_string(d) + " of index is larger than self's");
  op.valid(op[at_index].count() == 0 || op[from].shape[static_cast<size_t>(axis)] > 0, "self is empty along dim");
  const double bytes = 2 * op[to].bytes() + op[at_index].bytes();
  return op.finish(
      Unit::Vector, 0, [=](const Operands& v) { gather_numbers(v[from], axis, v[at_index], v[to]); }, bytes);
}
ACLNN_PHASE2(aclnnGather);

}  // extern "C"
