// Rows of tokens sorted by expert, and their way back.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ascend/ops/check.h"
#include "ascend/ops/quantise.h"

namespace ascend_sim {

namespace {

// The flat places (token * k + choice) of the experts within [first, end), sorted by expert, then by place.
std::vector<int64_t> sorted_places(const std::vector<int64_t>& experts, int64_t first, int64_t end) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] >= first && experts[i] < end) places.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
    return experts[static_cast<size_t>(a)] < experts[static_cast<size_t>(b)];
  });
  return places;
}

std::vector<int64_t> counts_of(const std::vector<int64_t>& experts, int64_t first, int64_t end) {
  std::vector<int64_t> counts(static_cast<size_t>(end - first), 0);
  for (const int64_t expert : experts) {
    if (expert >= first && expert < end) ++counts[static_cast<size_t>(expert - first)];
  }
  return counts;
}

// expertIdx within [0, expertNum], the last being a finished row's.
void check_experts(const std::vector<int64_t>& experts, int64_t count, const std::string& name) {
  for (const int64_t expert : experts) {
    if (expert < 0 || expert > count) {
      throw DeviceFault(name + ": expert " + std::to_string(expert) + " is none of " + std::to_string(count));
    }
  }
}

struct Routing {
  Slot x, experts, scale, offset, rows, places, counts, scales;
  int64_t count = 0, first = 0, end = 0, active = 0, kind = 0, quant = -1, place_kind = 0;
  bool wants_counts = true;
};

void copy_row(const View& from, int64_t row, const View& to, int64_t at_row) {
  const int64_t bytes = from.dim(-1) * from.element();
  std::memcpy(at<char>(to) + at_row * bytes, at<const char>(from) + row * bytes, static_cast<size_t>(bytes));
}

// Rows in the order of their experts, as they are or as int8.
void write_rows(const Operands& v, const Routing& r, const std::vector<int64_t>& sorted,
                const std::vector<int64_t>& experts) {
  const int64_t width = v[r.x].dim(-1), k = v[r.experts].dim(-1), room = v[r.rows].dim(0);
  const std::vector<float> factors = v[r.scale].given ? read(v[r.scale]) : std::vector<float>{};
  const float shift = v[r.offset].given ? read(v[r.offset])[0] : 0;
  std::vector<float> row(static_cast<size_t>(width));
  std::vector<int8_t> bytes(row.size());
  for (size_t i = 0; i < sorted.size() && static_cast<int64_t>(i) < room; ++i) {
    const int64_t token = sorted[i] / k, to = static_cast<int64_t>(i);
    if (r.quant < 0) {
      copy_row(v[r.x], token, v[r.rows], to);
      if (!factors.empty()) write_row(v[r.scales], to, 1, &factors[static_cast<size_t>(token)]);
      continue;
    }
    read_row(v[r.x], token, width, row.data());
    if (r.quant == 0) {
      for (size_t j = 0; j < row.size(); ++j) bytes[j] = to_int8(row[j] * factors[0] + shift);
    } else {
      const int64_t expert = experts[static_cast<size_t>(sorted[i])] - r.first;
      const float* smooth =
          factors.empty()
              ? nullptr
              : &factors[static_cast<size_t>(static_cast<int64_t>(factors.size()) > width ? expert * width : 0)];
      for (size_t j = 0; smooth && j < row.size(); ++j) row[j] *= smooth[j];
      const float scale = quantise_row(row.data(), width, bytes.data());
      write_row(v[r.scales], to, 1, &scale);
    }
    write_row(v[r.rows], to, width, bytes.data());
  }
}

void route(const Operands& v, const Routing& r, const std::string& name) {
  const std::vector<int64_t> experts = read<int64_t>(v[r.experts]);
  check_experts(experts, r.count, name);
  std::vector<int64_t> sorted = sorted_places(experts, r.first, r.end);
  const std::vector<int64_t> counts = counts_of(experts, r.first, r.end);
  if (r.place_kind == 0) {  // where each place went
    std::vector<int64_t> to(experts.size(), -1);
    for (size_t i = 0; i < sorted.size(); ++i) to[static_cast<size_t>(sorted[i])] = static_cast<int64_t>(i);
    write(v[r.places], to);
  } else {  // where each row came from; what is unused stays as it is
    write_row(v[r.places], 0, static_cast<int64_t>(sorted.size()), sorted.data());
  }
  write_rows(v, r, sorted, experts);
  if (!r.wants_counts) return;
  std::vector<int64_t> out;
  int64_t sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    sum += counts[i];
    if (r.kind == 2 && counts[i] > 0) out.insert(out.end(), {static_cast<int64_t>(i) + r.first, counts[i]});
    if (r.kind != 2) out.push_back(r.kind == 0 ? sum : counts[i]);
  }
  out.resize(static_cast<size_t>(v[r.counts].count()), 0);
  write(v[r.counts], out);
}

int finish_routing(Operator& op, const Routing& r) {
  const std::string name = op.name();
  return op.finish(Unit::Vector, static_cast<double>(op[r.experts].count()) * 16,
                   [r, name](const Operands& v) { route(v, r, name); });
}

// What both versions ask of tokens and choices.
void check_tokens(Operator& op, const Routing& r) {
  op.rank(r.x, 2, 2);
  op.rank(r.experts, 2, 2);
  op.dtype(r.experts, {kInt32});
  op.dtype(r.places, {kInt32});
  op.valid(op[r.experts].dim(0) == op[r.x].dim(0), "x and expertIdx have different numbers of rows");
  op.valid(op[r.experts].dim(1) > 0 && op[r.experts].dim(1) <= std::max<int64_t>(1, r.count),
           "expertIdx has more columns than experts");
  op.shape(r.places, {op[r.experts].count()});
  const int64_t all = op[r.experts].count(), rows = r.active > 0 ? std::min(all, r.active) : all;
  op.shape(r.rows, {rows, op[r.x].dim(1)});
}

struct Combine {
  Slot rows, places, x1, x2, bias, scales, experts, out;
  int64_t mode = 0;
};

void combine(const Operands& v, const Combine& c) {
  const int64_t tokens = v[c.out].dim(0), width = v[c.out].dim(1), k = tokens ? v[c.places].count() / tokens : 0;
  const int64_t room = width ? v[c.rows].count() / width : 0;
  const std::vector<int64_t> places = read<int64_t>(v[c.places]);
  const std::vector<float> scales = v[c.scales].given ? read(v[c.scales]) : std::vector<float>{};
  const std::vector<int64_t> experts = v[c.experts].given ? read<int64_t>(v[c.experts]) : std::vector<int64_t>{};
  std::vector<float> sum(static_cast<size_t>(width)), row(sum.size()), bias(sum.size(), 0.0f);
  for (int64_t token = 0; token < tokens; ++token) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (const Slot added : {c.x1, c.x2}) {
      if (!v[added].given) continue;
      read_row(v[added], token, width, row.data());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
    }
    for (int64_t j = 0; j < k; ++j) {
      const int64_t place = places[static_cast<size_t>(c.mode < 2 ? j * tokens + token : token * k + j)];
      if (place < 0) continue;  // dropped, or another rank's
      if (place >= room) {
        throw DeviceFault("aclnnMoeFinalizeRoutingV2: row " + std::to_string(place) + " is none of " +
                          std::to_string(room));
      }
      read_row(v[c.rows], place, width, row.data());
      if (v[c.bias].given) read_row(v[c.bias], experts[static_cast<size_t>(token * k + j)], width, bias.data());
      const float scale = scales.empty() ? 1 : scales[static_cast<size_t>(token * k + j)];
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += scale * (row[i] + bias[i]);
    }
    write_row(v[c.out], token, width, sum.data());
  }
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnMoeInitRoutingV2GetWorkspaceSize(Tensor x, Tensor expertIdx, int64_t activeNum, int64_t expertCapacity,
                                                  int64_t expertNum, int64_t dropPadMode,
                                                  int64_t expertTokensCountOrCumsumFlag,
                                                  bool expertTokensBeforeCapacityFlag, Tensor expandedXOut,
                                                  Tensor expandedRowIdxOut, Tensor expertTokensCountOrCumsumOut,
                                                  Tensor expertTokensBeforeCapacityOut, uint64_t* workspaceSize,
                                                  aclOpExecutor** executor) {
  Operator op("aclnnMoeInitRoutingV2", workspaceSize, executor);
  Routing r;
  const int64_t flag = expertTokensCountOrCumsumFlag;
  r.x = op.in("x", x), r.experts = op.in("expertIdx", expertIdx);
  r.rows = op.out("expandedXOut", expandedXOut), r.places = op.out("expandedRowIdxOut", expandedRowIdxOut);
  r.wants_counts = flag != 0;
  r.counts = r.wants_counts ? op.out("expertTokensCountOrCumsumOut", expertTokensCountOrCumsumOut)
                            : op.maybe_out("expertTokensCountOrCumsumOut", nullptr);
  r.scale = r.offset = op.maybe_in("", nullptr), r.scales = op.maybe_out("", nullptr);
  r.count = r.end = expertNum, r.active = activeNum, r.kind = flag == 1 ? 0 : 1;
  op.attributes({activeNum, expertCapacity, expertNum, dropPadMode, flag, expertTokensBeforeCapacityFlag});
  if (!op.ok()) return op.status();
  op.dtype(r.x, {kFloat, kHalf, kBf16});
  op.same_dtype(r.rows, r.x);
  op.dtype(r.counts, {kInt32});
  op.tiled(dropPadMode == 0, "dropPadMode is " + std::to_string(dropPadMode) + "; only 0 is simulated");
  op.tiled(expertNum > 0 && activeNum >= 0, "expertNum must be positive and activeNum not negative");
  op.tiled(flag >= 0 && flag <= 2, "expertTokensCountOrCumsumFlag may be 0, 1 (cumulative) or 2 (counts)");
  op.tiled(!expertTokensBeforeCapacityFlag, "expertTokensBeforeCapacityFlag goes with dropPadMode 1 only");
  check_tokens(op, r);
  op.shape(r.counts, {expertNum});
  return finish_routing(op, r);
}
ACLNN_PHASE2(aclnnMoeInitRoutingV2);

aclnnStatus aclnnMoeInitRoutingV3GetWorkspaceSize(
    Tensor x, Tensor expertIdx, Tensor scaleOptional, Tensor offsetOptional, int64_t activeNum, int64_t expertCapacity,
    int64_t expertNum, int64_t dropPadMode, int64_t expertTokensNumType, bool expertTokensNumFlag, int64_t quantMode,
    Ints activeExpertRangeOptional, int64_t rowIdxType, Tensor expandedXOut, Tensor expandedRowIdxOut,
    Tensor expertTokensCountOrCumsumOut, Tensor expandedScaleOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnMoeInitRoutingV3", workspaceSize, executor, Since::Cann85);
  Routing r;
  r.x = op.in("x", x), r.experts = op.in("expertIdx", expertIdx);
  r.scale = op.maybe_in("scaleOptional", scaleOptional), r.offset = op.maybe_in("offsetOptional", offsetOptional);
  const Dims range = op.ints("activeExpertRangeOptional", activeExpertRangeOptional, false);
  r.rows = op.out("expandedXOut", expandedXOut), r.places = op.out("expandedRowIdxOut", expandedRowIdxOut);
  r.wants_counts = expertTokensNumFlag;
  r.counts = r.wants_counts ? op.out("expertTokensCountOrCumsumOut", expertTokensCountOrCumsumOut)
                            : op.maybe_out("expertTokensCountOrCumsumOut", nullptr);
  const bool scaled = quantMode == 1 || (quantMode == -1 && op.given(r.scale));
  r.scales = scaled ? op.out("expandedScaleOut", expandedScaleOut) : op.maybe_out("expandedScaleOut", nullptr);
  r.count = expertNum, r.active = activeNum, r.kind = expertTokensNumType, r.quant = quantMode,
  r.place_kind = rowIdxType;
  op.attributes({activeNum, expertCapacity, expertNum, dropPadMode, r.kind, r.wants_counts, quantMode, rowIdxType});
  if (!op.ok()) return op.status();
  r.first = range.empty() ? 0 : range[0], r.end = range.size() == 2 ? range[1] : expertNum;
  op.tiled(range.empty() || (range.size() == 2 && r.first >= 0 && r.first < r.end && r.end <= expertNum),
           "activeExpertRangeOptional " + text_of(range) + " needs 0 <= first < end <= expertNum");
  op.tiled(dropPadMode == 0, "dropPadMode is " + std::to_string(dropPadMode) + "; only 0 is simulated");
  op.tiled(r.kind >= 0 && r.kind <= 2, "expertTokensNumType may be 0 (cumulative), 1 (counts) or 2 (pairs)");
  op.tiled(quantMode >= -1 && quantMode <= 1, "quantMode may be -1 (none), 0 (static) or 1 (dynamic)");
  op.tiled(rowIdxType == 0 || rowIdxType == 1, "rowIdxType may be 0 (gather) or 1 (scatter)");
  op.tiled(expertNum > 0 && activeNum >= 0, "expertNum must be positive and activeNum not negative");
  if (!op.ok()) return op.status();
  op.dtype(r.x, {kFloat, kHalf, kBf16, kInt8});
  op.dtype(r.rows, {quantMode == -1 ? op[r.x].dtype : kInt8});
  op.dtype(r.counts, {kInt64});
  op.dtype(r.scale, {kFloat});
  op.dtype(r.offset, {kFloat});
  op.dtype(r.scales, {kFloat});
  check_tokens(op, r);
  const int64_t experts = r.end - r.first, width = op[r.x].dim(1);
  op.shape(r.counts, r.kind == 2 ? Dims{expertNum, 2} : Dims{experts});
  op.shape(r.scales, {op[r.rows].dim(0)});
  if (quantMode == -1) op.shape(r.scale, {op[r.x].dim(0)});
  op.tiled(quantMode != 0 || op[r.scale].count() == 1, "static quantisation needs one scale");
  op.tiled(quantMode != 0 || op.given(r.scale), "static quantisation needs scaleOptional");
  const bool smooth = op[r.scale].count() == width || op[r.scale].count() == experts * width;
  op.tiled(quantMode != 1 || !op.given(r.scale) || smooth,
           "smooth scales need one row, or one per expert in the range");
  return finish_routing(op, r);
}
ACLNN_PHASE2(aclnnMoeInitRoutingV3);

aclnnStatus aclnnMoeFinalizeRoutingV2GetWorkspaceSize(Tensor expandedX, Tensor expandedRowIdx, Tensor x1Optional,
                                                      Tensor x2Optional, Tensor biasOptional, Tensor scalesOptional,
                                                      Tensor expertIdxOptional, int64_t dropPadMode, Tensor out,
                                                      uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnMoeFinalizeRoutingV2", workspaceSize, executor);
  Combine c;
  c.rows = op.in("expandedX", expandedX), c.places = op.in("expandedRowIdx", expandedRowIdx);
  c.x1 = op.maybe_in("x1Optional", x1Optional), c.x2 = op.maybe_in("x2Optional", x2Optional);
  c.bias = op.maybe_in("biasOptional", biasOptional), c.scales = op.maybe_in("scalesOptional", scalesOptional);
  c.experts = op.maybe_in("expertIdxOptional", expertIdxOptional);
  c.out = op.out("out", out);
  c.mode = dropPadMode;
  op.attributes({dropPadMode});
  if (!op.ok()) return op.status();
  op.dtype(c.rows, {kFloat, kHalf, kBf16});
  for (const Slot slot : {c.x1, c.x2, c.bias, c.out}) op.same_dtype(slot, c.rows);
  op.dtype(c.places, {kInt32});
  op.dtype(c.experts, {kInt32});
  op.dtype(c.scales, {op[c.rows].dtype, kFloat});
  op.tiled(dropPadMode >= 0 && dropPadMode <= 3, "dropPadMode may be 0 to 3");
  const int64_t rank = dropPadMode % 2 == 1 ? 3 : 2;
  op.rank(c.rows, rank, rank);
  op.rank(c.places, 1, 1);
  op.rank(c.out, 2, 2);
  if (!op.ok()) return op.status();
  const int64_t tokens = op[c.out].dim(0), k = tokens ? op[c.places].count() / tokens : 0;
  op.valid(tokens == 0 || op[c.places].count() % tokens == 0, "expandedRowIdx has no whole number of rows per token");
  op.valid(op[c.rows].dim(-1) == op[c.out].dim(1), "expandedX and out have different widths");
  for (const Slot slot : {c.x1, c.x2}) op.shape(slot, op[c.out].shape);
  op.tiled(op.given(c.x1) || !op.given(c.x2), "x2Optional needs x1Optional");
  op.tiled(op.given(c.experts) || !op.given(c.bias), "biasOptional needs expertIdxOptional");
  op.tiled(op.given(c.scales) || k <= 1, "more than one expert per token need scalesOptional");
  op.shape(c.scales, {tokens, k});
  op.shape(c.experts, {tokens, k});
  op.valid(!op.given(c.bias) || (op[c.bias].rank() == 2 && op[c.bias].dim(1) == op[c.out].dim(1)),
           "biasOptional needs one row per expert");
  return op.finish(Unit::Vector, static_cast<double>(op[c.rows].count()) * 2,
                   [=](const Operands& v) { combine(v, c); });
}
ACLNN_PHASE2(aclnnMoeFinalizeRoutingV2);

}  // extern "C"
