// Operators along one dimension: choosing, sorting, summing, SwiGlu.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

// Calls f(values, line) for each line of a packed view along an axis; `line` is outer * inner + place.
template <typename F>
void for_lines(const std::vector<double>& all, const Split& split, F&& f) {
  std::vector<double> line(static_cast<size_t>(split.size));
  for (int64_t outer = 0; outer < split.outer; ++outer) {
    for (int64_t inner = 0; inner < split.inner; ++inner) {
      for (int64_t i = 0; i < split.size; ++i) {
        line[static_cast<size_t>(i)] = all[static_cast<size_t>((outer * split.size + i) * split.inner + inner)];
      }
      f(line, outer, inner);
    }
  }
}

// Larger first; a NaN counts as the largest, as in torch.
bool larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

// The places of the sorted values; of equal ones the first comes first.
std::vector<int64_t> order(const std::vector<double>& line, bool descending) {
  std::vector<int64_t> places(line.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
    const double x = line[static_cast<size_t>(a)], y = line[static_cast<size_t>(b)];
    return descending ? larger(x, y) : larger(y, x);
  });
  return places;
}

bool one_of(aclDataType type, std::initializer_list<aclDataType> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

int sorted(Operator& op, Slot x, Slot values, Slot indices, int64_t dim, int64_t keep, bool descending) {
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[x].rank());
  op.valid(axis >= 0, "dim " + std::to_string(dim) + " is none of self's");
  op.same_dtype(values, x);
  op.dtype(indices, {kInt64});
  if (!op.ok()) return op.status();
  const Split split = split_at(op[x].shape, axis);
  if (keep < 0) keep = split.size;
  op.valid(keep <= split.size, "k is " + std::to_string(keep) + " of " + std::to_string(split.size));
  Dims expected = op[x].shape;
  if (!expected.empty()) expected[static_cast<size_t>(axis)] = keep;
  op.shape(values, expected);
  op.shape(indices, expected);
  const double levels = std::log2(static_cast<double>(std::max<int64_t>(2, split.size)));
  // Sort leaves rows of one element to the AI CPU as well.
  const bool on_core = one_of(op[x].dtype, {kFloat, kHalf, kBf16}) && (op.name() == "aclnnTopk" || op[x].dim(-1) != 1);
  return op.finish(op.vector_or(on_core), static_cast<double>(op[x].count()) * levels, [=](const Operands& v) {
    std::vector<double> chosen(static_cast<size_t>(v[values].count()));
    std::vector<int64_t> places(chosen.size());
    for_lines(read<double>(v[x]), split, [&](const std::vector<double>& line, int64_t outer, int64_t inner) {
      const std::vector<int64_t> found = order(line, descending);
      for (int64_t i = 0; i < keep; ++i) {
        const auto at_index = static_cast<size_t>((outer * keep + i) * split.inner + inner);
        places[at_index] = found[static_cast<size_t>(i)];
        chosen[at_index] = line[static_cast<size_t>(found[static_cast<size_t>(i)])];
      }
    });
    write(v[values], chosen);
    write(v[indices], places);
  });
}

// Sums in float where the numbers are floats and in whole numbers where not.
double sum_of(const std::vector<double>& line, size_t count, bool floats) {
  if (floats) {
    float sum = 0;
    for (size_t i = 0; i < count; ++i) sum += static_cast<float>(line[i]);
    return sum;
  }
  int64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<int64_t>(line[i]);
  return static_cast<double>(sum);
}

void softmax_line(std::vector<double>& line) {
  float highest = -INFINITY, sum = 0;
  for (const double value : line) highest = std::max(highest, static_cast<float>(value));
  for (double& value : line) {
    const float power = std::exp(static_cast<float>(value) - highest);
    sum += power;
    value = power;
  }
  for (double& value : line) value = static_cast<float>(value) / sum;
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnArgMaxGetWorkspaceSize(Tensor self, int64_t dim, bool keepdim, TensorRef out, uint64_t* workspaceSize,
                                        aclOpExecutor** executor) {
  Operator op("aclnnArgMax", workspaceSize, executor);
  const Slot x = op.in("self", self), y = op.out("out", out);
  op.attributes({dim, keepdim});
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[x].rank());
  op.valid(axis >= 0, "dim " + std::to_string(dim) + " is none of self's");
  op.dtype(y, {kInt32, kInt64});
  if (!op.ok()) return op.status();
  const Split split = split_at(op[x].shape, axis);
  op.valid(split.size > 0, "the dimension is empty");
  Dims expected = op[x].shape;
  if (!expected.empty()) expected[static_cast<size_t>(axis)] = 1;
  if (!keepdim && !expected.empty()) expected.erase(expected.begin() + axis);
  op.shape(y, expected);
  return op.finish(Unit::Vector, static_cast<double>(op[x].count()), [=](const Operands& v) {
    std::vector<int64_t> best(static_cast<size_t>(split.outer * split.inner));
    for_lines(read<double>(v[x]), split, [&](const std::vector<double>& line, int64_t outer, int64_t inner) {
      size_t place = 0;
      for (size_t i = 1; i < line.size(); ++i) {
        if (larger(line[i], line[place])) place = i;
      }
      best[static_cast<size_t>(outer * split.inner + inner)] = static_cast<int64_t>(place);
    });
    write(v[y], best);
  });
}
ACLNN_PHASE2(aclnnArgMax);

aclnnStatus aclnnTopkGetWorkspaceSize(Tensor self, int64_t k, int64_t dim, bool largest, bool sorted_values,
                                      TensorRef valuesOut, TensorRef indicesOut, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  Operator op("aclnnTopk", workspaceSize, executor);
  const Slot x = op.in("self", self), values = op.out("valuesOut", valuesOut),
             indices = op.out("indicesOut", indicesOut);
  op.attributes({k, dim, largest});
  op.valid(sorted_values, "sorted must be true");
  op.valid(k >= 0, "k is " + std::to_string(k));
  return sorted(op, x, values, indices, dim, k, largest);
}
ACLNN_PHASE2(aclnnTopk);

aclnnStatus aclnnSortGetWorkspaceSize(Tensor self, bool stable, int64_t dim, bool descending, TensorRef valuesOut,
                                      TensorRef indicesOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnSort", workspaceSize, executor);
  const Slot x = op.in("self", self), values = op.out("valuesOut", valuesOut),
             indices = op.out("indicesOut", indicesOut);
  op.attributes({stable, dim, descending});
  return sorted(op, x, values, indices, dim, -1, descending);
}
ACLNN_PHASE2(aclnnSort);

aclnnStatus aclnnSoftmaxGetWorkspaceSize(Tensor self, int64_t dim, TensorRef out, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  Operator op("aclnnSoftmax", workspaceSize, executor);
  const Slot x = op.in("self", self), y = op.out("out", out);
  op.attributes({dim});
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[x].rank());
  op.valid(axis >= 0, "dim " + std::to_string(dim) + " is none of self's");
  op.dtype(x, {kFloat, kHalf, kBf16});
  op.dtype(y, {kFloat, kHalf, kBf16});
  op.shape(y, op[x].shape);
  if (!op.ok()) return op.status();
  const Split split = split_at(op[x].shape, axis);
  return op.finish(Unit::Vector, static_cast<double>(op[x].count()) * 5, [=](const Operands& v) {
    std::vector<double> all = read<double>(v[x]), result(all.size());
    for_lines(all, split, [&](std::vector<double>& line, int64_t outer, int64_t inner) {
      softmax_line(line);
      for (int64_t i = 0; i < split.size; ++i) {
        result[static_cast<size_t>((outer * split.size + i) * split.inner + inner)] = line[static_cast<size_t>(i)];
      }
    });
    write(v[y], result);
  });
}
ACLNN_PHASE2(aclnnSoftmax);

aclnnStatus aclnnCumsumGetWorkspaceSize(Tensor self, int64_t dim, aclDataType dtype, TensorRef out,
                                        uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnCumsum", workspaceSize, executor);
  const Slot x = op.in("self", self), y = op.out("out", out);
  op.attributes({dim, dtype});
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[x].rank());
  op.valid(axis >= 0, "dim " + std::to_string(dim) + " is none of self's");
  op.valid(op[y].dtype == dtype, "out is " + name_of(op[y].dtype) + " but dtype asks for " + name_of(dtype));
  op.shape(y, op[x].shape);
  if (!op.ok()) return op.status();
  const Split split = split_at(op[x].shape, axis);
  const bool on_core = one_of(op[y].dtype, {kFloat, kHalf, kBf16, kInt32});  // self is converted first
  return op.finish(op.vector_or(on_core), static_cast<double>(op[x].count()), [=](const Operands& v) {
    std::vector<double> result(static_cast<size_t>(v[x].count()));
    for_lines(read<double>(v[x]), split, [&](const std::vector<double>& line, int64_t outer, int64_t inner) {
      float sum = 0;
      int64_t whole = 0;
      for (int64_t i = 0; i < split.size; ++i) {
        sum += static_cast<float>(line[static_cast<size_t>(i)]);
        whole += static_cast<int64_t>(is_float(dtype) ? 0 : line[static_cast<size_t>(i)]);
        result[static_cast<size_t>((outer * split.size + i) * split.inner + inner)] =
            is_float(dtype) ? static_cast<double>(sum) : static_cast<double>(whole);
      }
    });
    write(v[y], result);
  });
}
ACLNN_PHASE2(aclnnCumsum);

aclnnStatus aclnnReduceSumGetWorkspaceSize(Tensor self, Ints dims, bool keepDims, aclDataType dtype, TensorRef out,
                                           uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnReduceSum", workspaceSize, executor);
  const Slot x = op.in("self", self);
  const Dims asked = op.ints("dims", dims, true);
  const Slot y = op.out("out", out);
  op.attributes({keepDims, dtype});
  if (!op.ok()) return op.status();
  std::vector<char> reduced(op[x].shape.size(), asked.empty());
  for (const int64_t dim : asked) {
    const int64_t axis = axis_of(dim, op[x].rank());
    if (!op.valid(axis >= 0, "dim " + std::to_string(dim) + " is none of self's")) return op.status();
    if (!reduced.empty()) reduced[static_cast<size_t>(axis)] = 1;
  }
  op.valid(op[y].dtype == dtype, "out is " + name_of(op[y].dtype) + " but dtype asks for " + name_of(dtype));
  Dims expected, kept;
  for (size_t i = 0; i < reduced.size(); ++i) {
    if (!reduced[i] || keepDims) expected.push_back(reduced[i] ? 1 : op[x].shape[i]);
    kept.push_back(reduced[i] ? 1 : op[x].shape[i]);
  }
  op.shape(y, expected);
  return op.finish(Unit::Vector, static_cast<double>(op[x].count()), [=](const Operands& v) {
    // Each line of what stays is the sum over the dimensions that go, in ascending order.
    const View& from = v[x];
    Dims line_shape, line_strides;
    for (size_t i = 0; i < reduced.size(); ++i) {
      line_shape.push_back(reduced[i] ? from.shape[i] : 1);
      line_strides.push_back(from.strides[i]);
    }
    std::vector<double> sums;
    Dims outer = kept, outer_strides = from.strides;
    outer.push_back(1);
    outer_strides.push_back(0);
    for_rows(outer, outer_strides, [&](int64_t offset, int64_t) {
      View line = from;
      line.shape = line_shape;
      line.strides = line_strides;
      line.offset += offset;
      const std::vector<double> values = read<double>(line);
      sums.push_back(sum_of(values, values.size(), is_float(dtype)));
    });
    write(v[y], sums);
  });
}
ACLNN_PHASE2(aclnnReduceSum);

// The first half through silu, times the second.
aclnnStatus aclnnSwiGluGetWorkspaceSize(Tensor x, int64_t dim, Tensor out, uint64_t* workspaceSize,
                                        aclOpExecutor** executor) {
  Operator op("aclnnSwiGlu", workspaceSize, executor);
  const Slot in = op.in("x", x), y = op.out("out", out);
  op.attributes({dim});
  if (!op.ok()) return op.status();
  const int64_t axis = axis_of(dim, op[in].rank());
  op.valid(axis >= 0 && op[in].rank() > 0, "dim " + std::to_string(dim) + " is none of x's");
  op.dtype(in, {kFloat, kHalf, kBf16});
  op.same_dtype(y, in);
  if (!op.ok()) return op.status();
  Dims expected = op[in].shape;
  int64_t& halved = expected[static_cast<size_t>(axis)];
  op.valid(halved % 2 == 0, "the dimension of " + std::to_string(halved) + " has no halves");
  halved /= 2;
  op.shape(y, expected);
  const Split split = split_at(op[in].shape, axis);
  return op.finish(Unit::Vector, static_cast<double>(op[y].count()) * 6, [=](const Operands& v) {
    const std::vector<float> all = read(v[in]);
    std::vector<float> result(static_cast<size_t>(v[y].count()));
    const int64_t run = split.size / 2 * split.inner;
    for (int64_t outer = 0; outer < split.outer; ++outer) {
      for (int64_t i = 0; i < run; ++i) {
        const float gate = all[static_cast<size_t>(outer * 2 * run + i)];
        const float up = all[static_cast<size_t>(outer * 2 * run + run + i)];
        result[static_cast<size_t>(outer * run + i)] = gate / (1 + std::exp(-gate)) * up;
      }
    }
    write(v[y], result);
  });
}
ACLNN_PHASE2(aclnnSwiGlu);

}  // extern "C"
