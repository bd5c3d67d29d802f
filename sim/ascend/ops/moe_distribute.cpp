// Rows of tokens to the ranks of their experts, and sums of what comes back: MoeDistributeDispatchV2 and its
// counterpart, over a communicator that is theirs alone.
//
// Simulated is what one server has: experts in equal shares, none of them shared by all tokens, no mask, and as many
// tokens on each rank. Rows are sent as they are, or as int8 with a scale each, by the arithmetic of aclnnDynamicQuant
// (OT-2608 moe_distribute_dispatch_a2.h:427-458, moe_distribute_dispatch_v2_quant.h:178-214: 127 over the largest
// magnitude, products rounded to even, 1 over that number as scale; NN dynamic_quant.h:155-179 does the same). The
// numbers of the windows do not depend on that (moe_distribute_check_win_size.h:26,157-160). Rows lie by expert, then
// by rank, then in the order of tokens; how the real operators lay out what they tell each other (assistInfoForCombine,
// epRecvCounts) is theirs, and no caller may look.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ascend/ops/check.h"
#include "ascend/ops/quantise.h"

namespace ascend_sim {

namespace {

// Where a row that was sent came from, and a mark by which combine knows such rows.
struct Origin {
  int32_t rank = 0, token = 0, choice = 0, mark = 0;
};
constexpr int32_t kMark = 0x5eed, kAssist = 128;

struct ExpertGroup {
  std::string name;
  Seat seat;
  int64_t experts = 0, tokens = 0, k = 0, width = 0;  // tokens of one rank
  int64_t most = 0;                                   // tokens of any rank in any round: globalBS says them

  int64_t size() const { return seat.size; }
  int64_t each() const { return experts / size(); }
  int64_t room() const { return most * size() * std::min(each(), k); }
};

struct Sent {
  Slot x, experts, rows, scales, assist, counts, received;
  bool quantised = false;
};

// Bytes of HCCL_BUFFSIZE, in MB, 200 by default.
double buffer_bytes() {
  const char* text = std::getenv("HCCL_BUFFSIZE");
  return (text && *text ? std::strtod(text, nullptr) : 200) * (1 << 20);
}

// What both ask of the group, the tokens and the choices.
void check_group(Operator& op, ExpertGroup& g, int64_t size, int64_t rank, int64_t global) {
  op.valid(!g.name.empty() && g.name.size() < 128, "groupEp has 1 to 127 characters");
  if (!op.ok()) return;
  g.seat = seat_in(g.name);
  op.tiled(g.seat.size > 0, "there is no communicator " + g.name);
  op.tiled(size == g.seat.size && rank == g.seat.rank,
           "epWorldSize and epRankId are those of the communicator: " + std::to_string(g.seat.size) + " and " +
               std::to_string(g.seat.rank));
  op.tiled(size >= 2 && (machine().generation != 2 || size <= 8 || size % 8 == 0),
           "epWorldSize is " + std::to_string(size) + "; it is 2 to 8, or a multiple of 8");
  if (!op.ok()) return;
  op.obeys(Rule::DispatchExperts, g.experts > 0 && g.experts <= 1024 && g.experts % size == 0,
           std::to_string(g.experts) + " experts over " + std::to_string(size) + " ranks");
  const int64_t least = machine().generation == 2 ? 32 : 1024, most = machine().generation == 2 ? 10240 : 8192;
  const bool fits = g.width >= least && g.width <= most && (machine().generation != 2 || g.width % 32 == 0) &&
                    g.tokens >= 1 && g.tokens <= (machine().generation == 2 ? 256 : 512) && g.k >= 1 && g.k <= 16 &&
                    g.k <= g.experts;
  op.obeys(Rule::DispatchSizes, fits,
           std::to_string(g.tokens) + " tokens of " + std::to_string(g.width) + ", " + std::to_string(g.k) +
               " choices each");
  // moe_distribute_dispatch_v2_tiling.cpp:998-1017, moe_distribute_combine_v2_tiling.cpp:1551-1564.
  op.tiled(global == 0 || (global >= g.tokens * size && global % size == 0),
           "globalBS is 0, or the most tokens of any rank times the ranks");
  g.most = global == 0 ? g.tokens : global / size;
}

// The windows of A3; on A2 the vendor warns of too small ones.
void check_buffers(Operator& op, const ExpertGroup& g) {
  if (machine().generation == 2) return;
  const auto align = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  const int64_t sent = align(align(2 * g.width, 32) + 44, 512), back = align(2 * g.width, 512);
  const double needed =
      2.0 * static_cast<double>(g.most) * static_cast<double>(sent * g.size() * g.each() + back * g.k);
  op.obeys(Rule::DispatchBuffer, needed <= buffer_bytes(),
           std::to_string(static_cast<int64_t>(needed) >> 20) + " MB are needed");
}

struct Reserved {
  const aclTensor* first = nullptr;
  const aclTensor* second = nullptr;
  const aclTensor* third = nullptr;
  const aclTensor* fourth = nullptr;
};

void check_reserved(Operator& op, const Reserved& r, std::initializer_list<int64_t> zeros) {
  for (const aclTensor* t : {r.first, r.second, r.third, r.fourth}) op.absent("an operand for other forms", t);
  for (const int64_t value : zeros) op.tiled(value == 0, "an attribute for other forms is 0: they are not simulated");
}

// Bytes of a row on its way; one of int8 has its scale behind it.
int64_t sent_bytes(const ExpertGroup& g, bool quantised, int64_t element) {
  return quantised ? g.width + static_cast<int64_t>(sizeof(float)) : g.width * element;
}

// Ids of the choices, then the rows as they are sent.
std::vector<uint8_t> give_rows(const Operands& v, const Sent& s, const ExpertGroup& g) {
  const View& x = v[s.x];
  const std::vector<int32_t> ids = read<int32_t>(v[s.experts]);
  const size_t begin = ids.size() * 4, row = static_cast<size_t>(sent_bytes(g, s.quantised, x.element()));
  std::vector<uint8_t> out(begin + static_cast<size_t>(g.tokens) * row);
  std::memcpy(out.data(), ids.data(), begin);
  if (!s.quantised) {
    std::memcpy(out.data() + begin, at<uint8_t>(x), out.size() - begin);
    return out;
  }
  std::vector<float> numbers(static_cast<size_t>(g.width));
  for (int64_t t = 0; t < g.tokens; ++t) {
    uint8_t* to = out.data() + begin + static_cast<size_t>(t) * row;
    read_row(x, t, g.width, numbers.data());
    const float scale = quantise_row(numbers.data(), g.width, reinterpret_cast<int8_t*>(to));
    std::memcpy(to + g.width, &scale, sizeof scale);
  }
  return out;
}

double fullest(const std::vector<int64_t>& rows, int64_t size, double bytes) {
  int64_t most = 0;
  for (int64_t from = 0; from < size; ++from)
    for (int64_t to = 0; to < size; ++to)
      if (from != to) most = std::max(most, rows[static_cast<size_t>(from * size + to)]);
  return static_cast<double>(most) * bytes;
}

double take_rows(const Operands& v, const Sent& s, const ExpertGroup& g, int64_t kind,
                 const std::vector<std::vector<uint8_t>>& all) {
  const int64_t choices = g.tokens * g.k, first = g.seat.rank * g.each();
  const int64_t sent = sent_bytes(g, s.quantised, v[s.x].element()), row = g.width * v[s.rows].element();
  std::vector<int64_t> crossing(static_cast<size_t>(g.size() * g.size()), 0);
  std::vector<std::vector<int32_t>> ids(all.size(), std::vector<int32_t>(static_cast<size_t>(choices)));
  for (size_t r = 0; r < all.size(); ++r) {
    std::memcpy(ids[r].data(), all[r].data(), ids[r].size() * 4);
    for (const int32_t e : ids[r]) {
      if (e < 0 || e >= g.experts)
        throw DeviceFault("expert " + std::to_string(e) + " is none of " + std::to_string(g.experts));
      ++crossing[r * static_cast<size_t>(g.size()) + static_cast<size_t>(e / g.each())];
    }
  }
  std::vector<int64_t> counts, received;
  auto* assist = at<int32_t>(v[s.assist]);
  int64_t place = 0;
  for (int64_t e = first; e < first + g.each(); ++e) {
    const int64_t begin = place;
    for (size_t r = 0; r < all.size(); ++r) {
      for (int64_t i = 0; i < choices; ++i) {
        if (ids[r][static_cast<size_t>(i)] != e) continue;
        const uint8_t* from = all[r].data() + choices * 4 + static_cast<size_t>(i / g.k * sent);
        std::memcpy(at<uint8_t>(v[s.rows]) + place * row, from, static_cast<size_t>(row));
        if (s.quantised) std::memcpy(at<float>(v[s.scales]) + place, from + row, sizeof(float));
        const Origin origin{static_cast<int32_t>(r), static_cast<int32_t>(i / g.k), static_cast<int32_t>(i % g.k),
                            kMark};
        std::memcpy(assist + place++ * kAssist, &origin, sizeof origin);
      }
      received.push_back(place);
    }
    counts.push_back(kind == 0 ? place : place - begin);
  }
  write(v[s.counts], counts);
  received.resize(static_cast<size_t>(v[s.received].count()), 0);
  write(v[s.received], received);
  return fullest(crossing, g.size(), static_cast<double>(sent));
}

struct Combined {
  Slot rows, experts, assist, received, scales, out;
};

// How many rows there are, where each came from, and the rows.
std::vector<uint8_t> give_back(const Operands& v, const Combined& c, const ExpertGroup& g) {
  const std::vector<int32_t> received = read<int32_t>(v[c.received]);
  const int64_t count = received[static_cast<size_t>(g.size() * g.each() - 1)], row = g.width * v[c.rows].element();
  if (count < 0 || count > v[c.rows].dim(0))
    throw DeviceFault("epSendCounts is not what MoeDistributeDispatchV2 wrote");
  std::vector<uint8_t> out(8 + static_cast<size_t>(count) * (sizeof(Origin) + static_cast<size_t>(row)));
  std::memcpy(out.data(), &count, 8);
  uint8_t* to = out.data() + 8;
  for (int64_t i = 0; i < count; ++i, to += sizeof(Origin)) {
    std::memcpy(to, at<int32_t>(v[c.assist]) + i * kAssist, sizeof(Origin));
    Origin origin;
    std::memcpy(&origin, to, sizeof origin);
    if (origin.mark != kMark) throw DeviceFault("assistInfoForCombine is not what MoeDistributeDispatchV2 wrote");
  }
  std::memcpy(to, at<uint8_t>(v[c.rows]), static_cast<size_t>(count * row));
  return out;
}

// Sums in fp32 over the choices of a token, in their order.
double take_back(const Operands& v, const Combined& c, const ExpertGroup& g,
                 const std::vector<std::vector<uint8_t>>& all) {
  const std::vector<float> scales = read(v[c.scales]);
  const int64_t element = v[c.rows].element(), row = g.width * element;
  std::vector<const uint8_t*> found(static_cast<size_t>(g.tokens * g.k), nullptr);
  std::vector<int64_t> crossing(static_cast<size_t>(g.size() * g.size()), 0);
  for (size_t r = 0; r < all.size(); ++r) {
    int64_t count = 0;
    std::memcpy(&count, all[r].data(), 8);
    for (int64_t i = 0; i < count; ++i) {
      Origin origin;
      std::memcpy(&origin, all[r].data() + 8 + static_cast<size_t>(i) * sizeof origin, sizeof origin);
      ++crossing[r * static_cast<size_t>(g.size()) + static_cast<size_t>(origin.rank)];
      if (origin.rank == g.seat.rank)
        found[static_cast<size_t>(origin.token * g.k + origin.choice)] =
            all[r].data() + 8 + static_cast<size_t>(count) * sizeof origin + static_cast<size_t>(i * row);
    }
  }
  std::vector<float> sum(static_cast<size_t>(g.width)), one(sum.size());
  for (int64_t token = 0; token < g.tokens; ++token) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (int64_t j = token * g.k; j < (token + 1) * g.k; ++j) {
      if (!found[static_cast<size_t>(j)]) throw DeviceFault("a row of token " + std::to_string(token) + " is missing");
      read_run(v[c.rows].dtype, found[static_cast<size_t>(j)], 1, g.width, one.data());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += scales[static_cast<size_t>(j)] * one[i];
    }
    write_row(v[c.out], token, g.width, sum.data());
  }
  return fullest(crossing, g.size(), static_cast<double>(row));
}

// Rows over each link where all experts are chosen alike.
double even_bytes(const ExpertGroup& g, int64_t row) {
  return static_cast<double>(g.tokens * g.k) / static_cast<double>(g.size()) * static_cast<double>(row);
}

// What the operator makes of rows: itself, or int8 with a scale.
void check_rows(Operator& op, const Sent& s, int64_t mode) {
  op.obeys(Rule::DispatchQuant, mode == 0 || mode == 2, "quantMode is " + std::to_string(mode));
  if (!op.ok()) return;
  if (!s.quantised) {
    op.same_dtype(s.rows, s.x);
    return;
  }
  const bool given = op.given(s.scales) && op[s.scales].dtype == kFloat && op[s.scales].rank() == 1;
  op.obeys(Rule::DispatchQuant, op[s.rows].dtype == kInt8 && given,
           "expandXOut is INT8 and dynamicScalesOut FLOAT, a number for each row");
}

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnMoeDistributeDispatchV2GetWorkspaceSize(
    Tensor x, Tensor expertIds, Tensor scalesOptional, Tensor xActiveMaskOptional, Tensor expertScalesOptional,
    const char* groupEp, int64_t epWorldSize, int64_t epRankId, int64_t moeExpertNum, const char* groupTp,
    int64_t tpWorldSize, int64_t tpRankId, int64_t expertShardType, int64_t sharedExpertNum,
    int64_t sharedExpertRankNum, int64_t quantMode, int64_t globalBS, int64_t expertTokenNumsType, const char* commAlg,
    TensorRef expandXOut, TensorRef dynamicScalesOut, TensorRef assistInfoForCombineOut, TensorRef expertTokenNumsOut,
    TensorRef epRecvCountsOut, TensorRef tpRecvCountsOut, TensorRef expandScalesOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  Operator op("aclnnMoeDistributeDispatchV2", workspaceSize, executor, Since::Cann85);
  Sent s;
  ExpertGroup g;
  s.x = op.in("x", x), s.experts = op.in("expertIds", expertIds);
  op.absent("scalesOptional", scalesOptional);
  op.absent("xActiveMaskOptional", xActiveMaskOptional);
  const Slot weights = op.maybe_in("expertScalesOptional", expertScalesOptional);
  s.rows = op.out("expandXOut", expandXOut);
  s.scales = op.maybe_out("dynamicScalesOut", dynamicScalesOut);
  s.quantised = quantMode == 2;
  s.assist = op.out("assistInfoForCombineOut", assistInfoForCombineOut);
  s.counts = op.out("expertTokenNumsOut", expertTokenNumsOut);
  s.received = op.out("epRecvCountsOut", epRecvCountsOut);
  op.maybe_out("tpRecvCountsOut", tpRecvCountsOut);
  op.maybe_out("expandScalesOut", expandScalesOut);
  g.name = op.text(groupEp);
  op.text(groupTp);
  op.text(commAlg);
  op.attributes({epWorldSize, epRankId, moeExpertNum, globalBS, expertTokenNumsType, quantMode});
  if (!op.ok()) return op.status();
  check_reserved(op, {}, {tpRankId, expertShardType, sharedExpertNum, sharedExpertRankNum});
  op.tiled(tpWorldSize == 0 || tpWorldSize == 1, "tpWorldSize is 0 or 1");
  op.tiled(expertTokenNumsType == 0 || expertTokenNumsType == 1, "expertTokenNumsType is 0 (cumulative) or 1 (counts)");
  op.rank(s.x, 2, 2);
  op.rank(s.experts, 2, 2);
  op.dtype(s.x, {kHalf, kBf16});
  check_rows(op, s, quantMode);
  op.dtype(s.experts, {kInt32});
  op.dtype(s.assist, {kInt32});
  op.dtype(s.counts, {kInt64});
  op.dtype(s.received, {kInt32});
  op.dtype(weights, {kFloat});
  if (!op.ok()) return op.status();
  g.experts = moeExpertNum, g.tokens = op[s.x].dim(0), g.width = op[s.x].dim(1), g.k = op[s.experts].dim(1);
  check_group(op, g, epWorldSize, epRankId, globalBS);
  if (!op.ok()) return op.status();
  check_buffers(op, g);
  op.tiled(op[s.experts].dim(0) == g.tokens, "expertIds has a row for each token");
  op.shape(weights, {g.tokens, g.k});
  op.rank(s.rows, 2, 2);
  op.tiled(op[s.rows].dim(1) == g.width, "expandXOut has rows as x has");
  op.obeys(Rule::DispatchRoom, op[s.rows].dim(0) >= g.room(),
           "expandXOut has " + std::to_string(op[s.rows].dim(0)) + " rows of " + std::to_string(g.room()));
  if (s.quantised)
    op.obeys(Rule::DispatchRoom, op[s.scales].count() >= g.room(),
             "dynamicScalesOut has " + std::to_string(op[s.scales].count()) + " of " + std::to_string(g.room()));
  op.rank(s.assist, 1, 1);
  op.tiled(op[s.assist].count() >= op[s.rows].dim(0) * kAssist, "assistInfoForCombineOut has 128 numbers a row");
  op.shape(s.counts, {g.each()});
  op.tiled(op[s.received].count() >= g.size() * g.each(), "epRecvCountsOut has a number for each rank and expert");
  op.once("its ranks meet");
  const double bytes = even_bytes(g, sent_bytes(g, s.quantised, op[s.x].element()));
  Exchange exchange{g.name, static_cast<uint64_t>(g.tokens * g.width), op[s.rows].dtype, bytes, {}, {}};
  return op.finish_together(
      std::move(exchange), [s, g](const Operands& v) { return give_rows(v, s, g); },
      [s, g, kind = expertTokenNumsType](const Operands& v, const std::vector<std::vector<uint8_t>>& all) {
        return take_rows(v, s, g, kind, all);
      });
}
ACLNN_PHASE2(aclnnMoeDistributeDispatchV2);

aclnnStatus aclnnMoeDistributeCombineV2GetWorkspaceSize(
    Tensor expandX, Tensor expertIds, Tensor assistInfoForCombine, Tensor epSendCounts, Tensor expertScales,
    Tensor tpSendCountsOptional, Tensor xActiveMaskOptional, Tensor activationScaleOptional, Tensor weightScaleOptional,
    Tensor groupListOptional, Tensor expandScalesOptional, Tensor sharedExpertXOptional, const char* groupEp,
    int64_t epWorldSize, int64_t epRankId, int64_t moeExpertNum, const char* groupTp, int64_t tpWorldSize,
    int64_t tpRankId, int64_t expertShardType, int64_t sharedExpertNum, int64_t sharedExpertRankNum, int64_t globalBS,
    int64_t outDtype, int64_t commQuantMode, int64_t groupListType, const char* commAlg, TensorRef xOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  Operator op("aclnnMoeDistributeCombineV2", workspaceSize, executor, Since::Cann85);
  Combined c;
  ExpertGroup g;
  c.rows = op.in("expandX", expandX), c.experts = op.in("expertIds", expertIds);
  c.assist = op.in("assistInfoForCombine", assistInfoForCombine);
  c.received = op.in("epSendCounts", epSendCounts);
  c.scales = op.in("expertScales", expertScales);
  op.maybe_in("tpSendCountsOptional", tpSendCountsOptional);
  op.absent("xActiveMaskOptional", xActiveMaskOptional);
  check_reserved(
      op, {activationScaleOptional, weightScaleOptional, groupListOptional, sharedExpertXOptional},
      {tpRankId, expertShardType, sharedExpertNum, sharedExpertRankNum, outDtype, commQuantMode, groupListType});
  op.maybe_in("expandScalesOptional", expandScalesOptional);
  c.out = op.out("xOut", xOut);
  g.name = op.text(groupEp);
  op.text(groupTp);
  op.text(commAlg);
  op.attributes({epWorldSize, epRankId, moeExpertNum, globalBS});
  if (!op.ok()) return op.status();
  op.tiled(tpWorldSize == 0 || tpWorldSize == 1, "tpWorldSize is 0 or 1");
  op.rank(c.rows, 2, 2);
  op.rank(c.experts, 2, 2);
  op.rank(c.out, 2, 2);
  op.dtype(c.rows, {kHalf, kBf16});
  op.same_dtype(c.out, c.rows);
  op.dtype(c.experts, {kInt32});
  op.dtype(c.assist, {kInt32});
  op.dtype(c.received, {kInt32});
  op.dtype(c.scales, {kFloat});
  if (!op.ok()) return op.status();
  g.experts = moeExpertNum, g.tokens = op[c.out].dim(0), g.width = op[c.out].dim(1), g.k = op[c.experts].dim(1);
  check_group(op, g, epWorldSize, epRankId, globalBS);
  if (!op.ok()) return op.status();
  check_buffers(op, g);
  op.tiled(op[c.experts].dim(0) == g.tokens, "expertIds has a row for each token");
  op.shape(c.scales, {g.tokens, g.k});
  op.tiled(op[c.rows].dim(1) == g.width, "xOut has rows as expandX has");
  op.obeys(Rule::DispatchRoom, op[c.rows].dim(0) >= g.room(),
           "expandX has " + std::to_string(op[c.rows].dim(0)) + " rows of " + std::to_string(g.room()));
  op.tiled(op[c.assist].count() >= op[c.rows].dim(0) * kAssist, "assistInfoForCombine has 128 numbers a row");
  op.tiled(op[c.received].count() >= g.size() * g.each(), "epSendCounts has a number for each rank and expert");
  op.once("its ranks meet");
  const double bytes = even_bytes(g, g.width * op[c.rows].element());
  Exchange exchange{g.name, static_cast<uint64_t>(g.tokens * g.width), op[c.rows].dtype, bytes, {}, {}};
  return op.finish_together(
      std::move(exchange), [c, g](const Operands& v) { return give_back(v, c, g); },
      [c, g](const Operands& v, const std::vector<std::vector<uint8_t>>& all) { return take_back(v, c, g, all); });
}
ACLNN_PHASE2(aclnnMoeDistributeCombineV2);

}  // extern "C"
