// FlashAttentionVarLenScore: attention of sequences that lie one behind the other, without pages and without an order
// of their rows. Written for training; inference uses it for encoders and the vision towers of models.
#include <algorithm>

#include "ascend/ops/attention.h"
#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

constexpr int64_t kShortKeys = 1024, kFewTokens = 160 * 1024, kSmallHead = 96;
constexpr int64_t kMostHead = 768, kMostHeads = 256, kMostTokens = 1 << 20, kMostSequences = 2048;

// The host code brings heads to a multiple of 16 (of 128 from 196 numbers on, but for 448) by kernels of their own
// before and behind attention, unless heads, sequences and tokens are all small (MiracleDrawer/cann_ops_adv @ 5f95f56a,
// aclnn_flash_attention_score.cpp:247-282 and 358-364).
bool pads_heads(const Attention& a) {
  const int64_t to = a.width < 196 || a.width == 448 ? 16 : 128;
  if (a.width % to == 0) return false;
  int64_t longest = 0;
  for (const Request& request : a.requests) longest = std::max(longest, request.kv_length);
  return a.width >= kSmallHead || longest > kShortKeys || a.tokens >= kFewTokens || longest == 0;
}

// (3 of the first product's results, twice as many again in FLOAT, and 4 of the second's) for each core with work, and
// what the library keeps (hicann/ops-transformer @ 02ca39cd, flash_attention_score_tiling_general.cpp: GetWorkspaceSize
// of the tiling for joined tokens). Blocks of 64 rows by 8 of 128 keys, which its search over sizes may choose others
// for (assumed).
uint64_t varlen_workspace(const Attention& a, bool single) {
  constexpr int64_t kRows = 64, kKeys = 8 * 128;
  int64_t blocks = 0;
  for (const Request& request : a.requests) blocks += (request.length + kRows - 1) / kRows * a.heads;
  const int64_t cores = std::min<int64_t>(blocks, machine().vector_cores), width = (a.width + 15) / 16 * 16;
  const int64_t first = kRows * kKeys * 4;
  return (uint64_t{16} << 20) + static_cast<uint64_t>(cores * (first * (single ? 5 : 3) + 4 * kRows * width * 4));
}

// Ends of the sequences as their places among all rows.
bool places_of(Operator& op, const Dims& ends, int64_t rows, const char* name, std::vector<Request>& requests,
               int64_t Request::*first, int64_t Request::*length) {
  int64_t start = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!op.tiled(ends[i] >= start, std::string(name) + " falls at " + std::to_string(i))) return false;
    requests[i].*first = start;
    requests[i].*length = ends[i] - start;
    start = ends[i];
  }
  return op.tiled(start == rows,
                  std::string(name) + " ends at " + std::to_string(start) + " of " + std::to_string(rows) + " rows");
}

void check_varlen(Operator& op, Attention& a, Slot sum) {
  op.dtype(a.query, {kFloat, kHalf, kBf16});
  for (const Slot slot : {a.keys[0], a.values[0], a.out}) op.same_dtype(slot, a.query);
  for (const Slot slot : {a.query, a.keys[0], a.values[0]}) op.rank(slot, 3, 3);
  op.valid(a.layout == "TND", "inputLayout is \"" + a.layout + "\"; it must be TND");
  if (!op.ok()) return;
  const View &query = op[a.query], &key = op[a.keys[0]], &value = op[a.values[0]];
  a.tokens = a.rows = query.dim(0), a.kv_tokens = key.dim(0), a.kv_heads = key.dim(1);
  a.width = query.dim(2), a.value_width = value.dim(2);
  op.tiled(a.heads == query.dim(1) && a.heads >= 1 && a.heads <= kMostHeads,
           "headNum is " + std::to_string(a.heads) + " but query " + text_of(query.shape));
  op.tiled(a.kv_heads > 0 && a.heads % std::max<int64_t>(1, a.kv_heads) == 0, "key heads must divide headNum");
  op.valid(
      key.dim(2) == a.width && value.dim(0) == a.kv_tokens && value.dim(1) == a.kv_heads && a.value_width <= a.width,
      "key " + text_of(key.shape) + " and value " + text_of(value.shape) + " do not fit query " + text_of(query.shape));
  op.obeys(Rule::VarlenHeads, a.width <= 512, "heads of " + std::to_string(a.width));
  op.valid(a.width <= kMostHead, "heads of " + std::to_string(a.width) + "; at most " + std::to_string(kMostHead));
  op.tiled(a.tokens <= kMostTokens && a.kv_tokens <= kMostTokens, "more than " + std::to_string(kMostTokens) + " rows");
  op.tiled(!a.lengths.empty() && a.lengths.size() == a.kv_lengths.size(),
           "actualSeqQLen and actualSeqKvLen must be given and equally long");
  op.obeys(Rule::VarlenSequences, static_cast<int64_t>(a.lengths.size()) <= kMostSequences,
           std::to_string(a.lengths.size()) + " sequences");
  op.shape(a.out, {a.tokens, a.heads, a.value_width});
  for (const Slot slot : {a.lse, sum}) {
    op.dtype(slot, {kFloat});
    op.shape(slot, {a.tokens, a.heads, 8});
  }
  if (!op.ok()) return;
  a.requests.resize(a.lengths.size());
  places_of(op, a.lengths, a.tokens, "actualSeqQLen", a.requests, &Request::first, &Request::length);
  places_of(op, a.kv_lengths, a.kv_tokens, "actualSeqKvLen", a.requests, &Request::kv_first, &Request::kv_length);
  for (const Request& request : a.requests)
    op.tiled(request.length == 0 || request.kv_length > 0, "a sequence has rows and no keys");
}

// The largest score and the sum of the exponentials of each row and head, eight times; no test looks at their numbers.
void fill_softmax(const View& of) { write(of, std::vector<float>(static_cast<size_t>(of.count()), 1.f)); }

}  // namespace

}  // namespace ascend_sim

using namespace ascend_sim;  // NOLINT: the C symbols below stand outside of it

extern "C" {

aclnnStatus aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
    Tensor query, Tensor key, Tensor value, Tensor realShiftOptional, Tensor dropMaskOptional,
    Tensor paddingMaskOptional, Tensor attenMaskOptional, Ints prefixOptional, Ints actualSeqQLenOptional,
    Ints actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, Tensor softmaxMaxOut,
    Tensor softmaxSumOut, Tensor softmaxOutOut, Tensor attentionOutOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  Operator op("aclnnFlashAttentionVarLenScore", workspaceSize, executor);
  Attention a;
  a.has_pages = false;
  a.in = a.to = Layout::Tnd;
  a.heads = headNum, a.scale = scaleValue, a.before = preTokens, a.after = nextTokens;
  a.query = op.in("query", query);
  a.keys = {op.in("key", key)};
  a.values = {op.in("value", value)};
  a.lengths = op.ints("actualSeqQLenOptional", actualSeqQLenOptional, false);
  a.kv_lengths = op.ints("actualSeqKvLenOptional", actualSeqKvLenOptional, false);
  a.layout = op.text(inputLayout);
  a.lse = op.out("softmaxMaxOut", softmaxMaxOut);
  const Slot sum = op.out("softmaxSumOut", softmaxSumOut);
  a.out = op.out("attentionOutOut", attentionOutOut);
  a.query_rope = a.key_rope = a.table = a.mask = op.maybe_in("", nullptr);
  op.attributes({headNum, preTokens, nextTokens, innerPrecise, sparseMode});
  op.attribute(scaleValue);
  op.absent("realShiftOptional", realShiftOptional);
  op.absent("dropMaskOptional", dropMaskOptional);
  op.absent("paddingMaskOptional", paddingMaskOptional);
  op.absent("attenMaskOptional", attenMaskOptional);
  op.absent("prefixOptional", prefixOptional);
  op.absent("softmaxOutOut", softmaxOutOut);
  op.tiled(keepProb == 1, "keepProb is " + std::to_string(keepProb) + "; dropout is not simulated");
  if (op.ok()) check_varlen(op, a, sum);
  op.once("its lengths are host arrays");
  op.varies();
  if (!op.ok()) return op.status();
  if (pads_heads(a)) op.pads(3, 1);  // query, key and value before it, the result behind it
  const bool single = op[a.query].dtype == kFloat;
  return op.finish(
      Unit::Mixed, attention_operations(a),
      [a, sum](const Operands& v) {
        compute_attention(a, v);
        fill_softmax(v[a.lse]);
        fill_softmax(v[sum]);
      },
      attention_bytes(op, a), varlen_workspace(a, single));
}
ACLNN_PHASE2(aclnnFlashAttentionVarLenScore);

}  // extern "C"
