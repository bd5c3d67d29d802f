// Rows of tokens to the ranks of their experts, and sums of what comes back: MoeDistributeDispatchV2 and its
// counterpart, over a communicator that is theirs alone.
//
// Simulated is what one server has: experts in equal shares, none of them shared by all tokens, no quantisation and no
// mask. Rows lie by expert, then by rank, then in the order of tokens; how the real operators lay out what they tell
// each other (assistInfoForCombine, epRecvCounts) is theirs, and no caller may look.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ascend/ops/check.h"

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

  int64_t size() const { return seat.size; }
  int64_t each() const { return experts / size(); }
  int64_t room() const { return tokens * size() * std::min(each(), k); }
};

struct Sent {
  Slot x, experts, rows, assist, counts, received;
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
  op.tiled(global == 0 || global == g.tokens * size,
           "globalBS is 0 or the tokens of all ranks, which are as many on each");
}

// The windows of A3; on A2 the vendor warns of too small ones.
void check_buffers(Operator& op, const ExpertGroup& g) {
  if (machine().generation == 2) return;
  const auto align = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  const int64_t sent = align(align(2 * g.width, 32) + 44, 512), back = align(2 * g.width, 512);
  const double needed =
      2.0 * static_cast<double>(g.tokens) * static_cast<double>(sent * g.size() * g.each() + back * g.k);
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

// Ids of the choices, then the rows.
std::vector<uint8_t> give_rows(const View& experts, const View& x) {
  const std::vector<int32_t> ids = read<int32_t>(experts);
  std::vector<uint8_t> out(ids.size() * 4 + static_cast<size_t>(x.bytes()));
  std::memcpy(out.data(), ids.data(), ids.size() * 4);
  std::memcpy(out.data() + ids.size() * 4, at<uint8_t>(x), out.size() - ids.size() * 4);
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
  const int64_t choices = g.tokens * g.k, row = g.width * v[s.x].element(), first = g.seat.rank * g.each();
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
        std::memcpy(at<uint8_t>(v[s.rows]) + place * row,
                    all[r].data() + choices * 4 + static_cast<size_t>(i / g.k * row), static_cast<size_t>(row));
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
  return fullest(crossing, g.size(), static_cast<double>(row));
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
double even_bytes(const Operator& op, const ExpertGroup& g, Slot rows) {
  return static_cast<double>(g.tokens * g.k) / static_cast<double>(g.size()) * static_cast<double>(g.width) *
         static_cast<double>(op[rows].element());
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
  op.maybe_out("dynamicScalesOut", dynamicScalesOut);
  s.assist = op.out("assistInfoForCombineOut", assistInfoForCombineOut);
  s.counts = op.out("expertTokenNumsOut", expertTokenNumsOut);
  s.received = op.out("epRecvCountsOut", epRecvCountsOut);
  op.maybe_out("tpRecvCountsOut", tpRecvCountsOut);
  op.maybe_out("expandScalesOut", expandScalesOut);
  g.name = op.text(groupEp);
  op.text(groupTp);
  op.text(commAlg);
  op.attributes({epWorldSize, epRankId, moeExpertNum, globalBS, expertTokenNumsType});
  if (!op.ok()) return op.status();
  check_reserved(op, {}, {tpRankId, expertShardType, sharedExpertNum, sharedExpertRankNum, quantMode});
  op.tiled(tpWorldSize == 0 || tpWorldSize == 1, "tpWorldSize is 0 or 1");
  op.tiled(expertTokenNumsType == 0 || expertTokenNumsType == 1, "expertTokenNumsType is 0 (cumulative) or 1 (counts)");
  op.rank(s.x, 2, 2);
  op.rank(s.experts, 2, 2);
  op.dtype(s.x, {kHalf, kBf16});
  op.same_dtype(s.rows, s.x);
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
  op.rank(s.assist, 1, 1);
  op.tiled(op[s.assist].count() >= op[s.rows].dim(0) * kAssist, "assistInfoForCombineOut has 128 numbers a row");
  op.shape(s.counts, {g.each()});
  op.tiled(op[s.received].count() >= g.size() * g.each(), "epRecvCountsOut has a number for each rank and expert");
  op.once("its ranks meet");
  Exchange exchange{g.name, static_cast<uint64_t>(g.tokens * g.width), op[s.x].dtype, even_bytes(op, g, s.x), {}, {}};
  return op.finish_together(
      std::move(exchange), [s](const Operands& v) { return give_rows(v[s.experts], v[s.x]); },
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
  Exchange exchange{g.name, static_cast<uint64_t>(g.tokens * g.width), op[c.rows].dtype, even_bytes(op, g, c.rows), {},
                    {}};
  return op.finish_together(
      std::move(exchange), [c, g](const Operands& v) { return give_back(v, c, g); },
      [c, g](const Operands& v, const std::vector<std::vector<uint8_t>>& all) { return take_back(v, c, g, all); });
}
ACLNN_PHASE2(aclnnMoeDistributeCombineV2);

}  // extern "C"
