// What the documents ask of the arguments of attention.
//
// Where two of one time give different limits the wider one counts: long queries over pages may use blocks up to 1024.
#include <algorithm>

#include "ascend/ops/attention.h"
#include "ascend/ops/check.h"

namespace ascend_sim {

namespace {

bool power_of_two(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

// One head per row: BSH gets its last dimension split. An empty shape where that is impossible.
Dims split_heads(const View& view, bool joined_heads, int64_t heads) {
  if (!joined_heads) return view.shape;
  if (view.rank() != 3 || heads <= 0 || view.dim(2) % heads != 0) return {};
  return {view.dim(0), view.dim(1), heads, view.dim(2) / heads};
}

bool read_layout(Operator& op, Attention& a, bool& joined_heads) {
  struct Name {
    const char* name;
    Layout in, to;
    bool pair;  // the two operators that FIA replaced have it too
  };
  static constexpr Name kNames[] = {
      {"BSH", Layout::Bsnd, Layout::Bsnd, true},   {"BSND", Layout::Bsnd, Layout::Bsnd, true},
      {"BNSD", Layout::Bnsd, Layout::Bnsd, true},  {"BNSD_BSND", Layout::Bnsd, Layout::Bsnd, true},
      {"TND", Layout::Tnd, Layout::Tnd, false},    {"TND_NTD", Layout::Tnd, Layout::Ntd, false},
      {"NTD_TND", Layout::Ntd, Layout::Tnd, false}};
  const bool fused = !a.one_token && a.has_pages;
  std::string allowed;
  for (const Name& name : kNames) {
    if (!fused && !name.pair) continue;
    if (a.one_token && a.layout == "BNSD_BSND") continue;
    if (a.layout == name.name) {
      a.in = name.in, a.to = name.to;
      joined_heads = a.layout == "BSH";
      return true;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(name.name);
  }
  return op.tiled(false, "inputLayout \"" + a.layout + "\" is none of " + allowed);
}

// Head sizes and numbers of rows of the query, and the shape of what is like it.
bool read_query(Operator& op, Attention& a, bool joined_heads) {
  const Dims shape = split_heads(op[a.query], joined_heads, a.heads);
  const size_t rank = a.joined() ? 3 : 4;
  if (!op.valid(shape.size() == rank,
                "query " + text_of(op[a.query].shape) + " does not fit inputLayout " + a.layout)) {
    return false;
  }
  const size_t heads = a.in == Layout::Bsnd ? 2 : a.in == Layout::Ntd ? 0 : 1;
  a.width = shape.back();
  a.tokens = a.joined() ? shape[a.in == Layout::Tnd ? 0 : 1] : shape[0];
  a.rows = a.joined() ? a.tokens : shape[a.in == Layout::Bsnd ? 1 : 2];
  return op.valid(shape[heads] == a.heads, "query " + text_of(op[a.query].shape) + " has " +
                                               std::to_string(shape[heads]) + " heads, numHeads says " +
                                               std::to_string(a.heads));
}

// The shape of a tensor like the query, with heads of another width, in a layout.
Dims like_query(const Attention& a, Layout layout, bool joined_heads, int64_t width) {
  switch (layout) {
    case Layout::Bsnd:
      return joined_heads ? Dims{a.tokens, a.rows, a.heads * width} : Dims{a.tokens, a.rows, a.heads, width};
    case Layout::Bnsd: return {a.tokens, a.heads, a.rows, width};
    case Layout::Tnd: return {a.tokens, a.heads, width};
    case Layout::Ntd: break;
  }
  return {a.heads, a.tokens, width};
}

// A pool of pages; answers the width of a head, or 0 with the reason noted.
int64_t pool_width(Operator& op, Attention& a, Slot slot, const std::string& name, bool first) {
  const View& pool = op[slot];
  Pages pages = Pages::None;
  int64_t block = 0, width = 0;
  if (pool.rank() == 3 && pool.dim(2) % a.kv_heads == 0) {
    pages = Pages::Rows, block = pool.dim(1), width = pool.dim(2) / a.kv_heads;
    op.tiled(pool.dim(2) <= 65535, name + ": rows of " + std::to_string(pool.dim(2)) + " are longer than 65535");
  } else if (pool.rank() == 4 && pool.dim(1) == a.kv_heads) {
    pages = Pages::HeadMajor, block = pool.dim(2), width = pool.dim(3);
  } else if (pool.rank() == 5 && pool.dim(1) == a.kv_heads && pool.dim(4) == 16) {
    pages = Pages::Fractal, block = pool.dim(3), width = pool.dim(2) * 16;
  }
  if (!op.tiled(pages != Pages::None, name + " " + text_of(pool.shape) +
                                          " is no pool: [blocks, size, heads * D], [blocks, heads, size, D] or "
                                          "[blocks, heads, D / 16, size, 16]")) {
    return 0;
  }
  op.tiled(block == a.page,
           name + " has pages of " + std::to_string(block) + ", blockSize says " + std::to_string(a.page));
  op.tiled(first || pages == a.pages, "key and value pools must have the same layout");
  a.pages = pages;
  return width;
}

void check_pages(Operator& op, Attention& a, bool absorbed) {
  op.tiled(a.keys.size() == 1 && a.values.size() == 1, "pages allow only one key and one value tensor");
  op.dtype(a.table, {kInt32});
  const auto batch = static_cast<int64_t>(a.joined() ? a.lengths.size() : static_cast<size_t>(a.tokens));
  op.tiled(op[a.table].rank() == 2 && op[a.table].dim(0) == batch, "blockTable " + text_of(op[a.table].shape) +
                                                                       " needs one row for each of the " +
                                                                       std::to_string(batch) + " requests");
  op.tiled(!a.kv_lengths.empty(), "actualSeqLengthsKv is needed with a blockTable");
  const std::string size = "blockSize is " + std::to_string(a.page) + "; it must be a multiple of ";
  const bool sixteens = a.page > 0 && a.page % 16 == 0;
  if (a.joined()) {
    op.tiled(sixteens && a.page <= 128, size + "16 up to 128 in " + a.layout);
  } else if (a.rows > 1) {
    const int64_t most = machine().cann != Cann::V8_1 ? 1024 : 512;
    op.tiled(a.page > 0 && a.page % 128 == 0 && a.page <= most, size + "128 up to " + std::to_string(most));
  } else {
    op.tiled(sixteens && a.page <= 512, size + "16 up to 512");
  }
  if (!op.ok()) return;
  op.valid(pool_width(op, a, a.keys[0], "key", true) == a.width,
           "key " + text_of(op[a.keys[0]].shape) + " has no heads of " + std::to_string(a.width));
  a.value_width = op.ok() ? pool_width(op, a, a.values[0], "value", false) : 0;
  const bool rows_only = a.in == Layout::Bsnd || (a.joined() && !absorbed);
  op.tiled(!rows_only || a.pages == Pages::Rows || (absorbed && a.pages == Pages::Fractal),
           "inputLayout " + a.layout + " needs pools of [blocks, size, heads * D]");
}

void check_unpaged(Operator& op, Attention& a, bool joined_heads) {
  const bool list = a.keys.size() > 1;
  op.tiled(!list || (!a.joined() && static_cast<int64_t>(a.keys.size()) == a.tokens),
           "a list of keys needs one per request, and no joined layout");
  op.valid(a.values.size() == a.keys.size(), "key and value are lists of different lengths");
  for (size_t i = 0; i < a.keys.size() && op.ok(); ++i) {
    const Dims key = split_heads(op[a.keys[i]], joined_heads, a.kv_heads);
    const Dims value = split_heads(op[a.values[i]], joined_heads, a.kv_heads);
    const size_t rank = a.joined() ? 3 : 4, heads = a.in == Layout::Bsnd ? 2 : a.in == Layout::Ntd ? 0 : 1;
    const std::string text = "key " + text_of(op[a.keys[i]].shape) + " and value " + text_of(op[a.values[i]].shape);
    if (!op.valid(key.size() == rank && value.size() == rank && key[heads] == a.kv_heads && key.back() == a.width,
                  text + " do not fit query, layout and heads")) {
      return;
    }
    op.valid(std::equal(key.begin(), key.end() - 1, value.begin()), text + " may differ in their last dimension only");
    op.valid(a.joined() || key[0] == (list ? 1 : a.tokens), text + " do not have the query's batch");
    a.value_width = value.back();
    a.kv_rows = a.joined() ? 0 : key[a.in == Layout::Bsnd ? 1 : 2];
    a.kv_tokens = a.joined() ? key[a.in == Layout::Tnd ? 0 : 1] : 0;
  }
}

void check_widths(Operator& op, const Attention& a, bool absorbed) {
  const int64_t d = a.width, v = a.value_width;
  const std::string text = "head sizes " + std::to_string(d) + " and " + std::to_string(v);
  if (a.rope_width > 0) {
    op.tiled(a.rope_width == 64, "queryRope has heads of " + std::to_string(a.rope_width) + "; they must be 64");
    op.tiled((d == 128 || d == 512) && v == d, text + ": with queryRope both must be 128 or 512");
    if (absorbed) {
      const int64_t n = a.heads;
      op.obeys(Rule::LatentHeads, !a.joined() || n == 32 || n == 64 || n == 128, std::to_string(n) + " heads");
      const bool fractal = a.pages == Pages::Fractal;
      op.obeys(Rule::LatentPages, a.page == 128 || (a.page == 16 && !fractal), "pages of " + std::to_string(a.page));
      op.tiled(power_of_two(a.heads) && a.heads <= 128 && a.kv_heads == 1,
               std::to_string(a.heads) + " heads over " + std::to_string(a.kv_heads) +
                   ": of size 512 there may be 1, 2, 4 ... 128 over 1");
      op.tiled(a.pages != Pages::None, "heads of 512 with queryRope need a blockTable");
    }
  } else if (a.joined()) {
    op.obeys(Rule::AttentionJoinedWidth, (d == v && (d == 64 || d == 128 || d == 192)) || (d == 192 && v == 128), text);
    op.tiled((d == v && d <= 256) || (d == 192 && v == 128),
             text + ": in " + a.layout + " both must be the same up to 256, or 192 and 128");
  } else {
    op.tiled(d == v && d <= 512, text + " must be the same, at most 512");
  }
}

// Cumulative lengths become lengths; the last must be the number of tokens.
bool uncumulate(Operator& op, const Dims& ends, int64_t total, const std::string& name, std::vector<Request>& requests,
                int64_t Request::*first, int64_t Request::*length) {
  int64_t start = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!op.tiled(ends[i] >= start, name + " is cumulative and must not fall at " + std::to_string(i))) return false;
    requests[i].*first = start;
    requests[i].*length = ends[i] - start;
    start = ends[i];
  }
  return op.tiled(start == total, name + " is cumulative and ends at " + std::to_string(start) + ", not at the " +
                                      std::to_string(total) + " tokens");
}

bool per_request(Operator& op, const Dims& lengths, int64_t most, const std::string& name,
                 std::vector<Request>& requests, int64_t Request::*length) {
  if (!op.tiled(lengths.empty() || lengths.size() == 1 || lengths.size() == requests.size(),
                name + " has " + std::to_string(lengths.size()) + " entries for " + std::to_string(requests.size()) +
                    " requests")) {
    return false;
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t value = lengths.empty() ? most : lengths[lengths.size() == 1 ? 0 : i];
    if (!op.tiled(value >= 0 && value <= most, name + " says " + std::to_string(value) + " at " + std::to_string(i) +
                                                   "; there is room for " + std::to_string(most))) {
      return false;
    }
    requests[i].*length = value;
  }
  return true;
}

// One sink for each query head.
void check_sinks(Operator& op, Attention& a) {
  if (!op.given(a.sinks)) return;
  const View& sinks = op[a.sinks];
  a.sunk = true;
  op.shape(a.sinks, {a.heads});
  op.obeys(Rule::AttentionSinkType, sinks.dtype == op[a.query].dtype, "they are " + name_of(sinks.dtype));
  op.obeys(Rule::AttentionSinkJoined, a.layout == "TND" || a.layout == "NTD_TND", "inputLayout is " + a.layout);
  const int64_t d = a.value_width;
  op.obeys(Rule::AttentionSinkWidth, d == 64 || d == 128, "values have " + std::to_string(d));
  op.tiled(a.precise == 0, "innerPrecise must be 0 with sinks");
  // Heads of 64 in bf16 are left to the general kernel (OT-2608 fused_infer_attention_score_tiling.cpp:1623-1630).
  a.sunk_apart = a.in == Layout::Tnd && a.width == 64 && sinks.dtype == kBf16;
}

void read_lengths(Operator& op, Attention& a, bool absorbed) {
  const int64_t room = a.pages == Pages::None ? a.kv_rows : op[a.table].dim(1) * a.page;
  if (a.joined()) {
    op.tiled(!a.lengths.empty() && !a.kv_lengths.empty(), a.layout + " needs actualSeqLengths and actualSeqLengthsKv");
    op.tiled(a.lengths.size() <= 4096, "actualSeqLengths has more than 4096 entries");
    if (!op.ok()) return;
    a.requests.resize(a.lengths.size());
    if (!uncumulate(op, a.lengths, a.tokens, "actualSeqLengths", a.requests, &Request::first, &Request::length)) return;
    if (a.pages == Pages::None) {
      if (!op.tiled(a.kv_lengths.size() == a.lengths.size(), "actualSeqLengths and ...Kv differ in length")) return;
      uncumulate(op, a.kv_lengths, a.kv_tokens, "actualSeqLengthsKv", a.requests, &Request::kv_first,
                 &Request::kv_length);
      return;
    }
  } else {
    a.requests.resize(static_cast<size_t>(a.tokens));
    if (!per_request(op, a.lengths, a.rows, "actualSeqLengths", a.requests, &Request::length)) return;
    if (a.keys.size() > 1) {  // each tensor has its own room
      for (size_t i = 0; i < a.keys.size() && a.kv_lengths.empty(); ++i) {
        a.requests[i].kv_length = op[a.keys[i]].dim(a.in == Layout::Bnsd ? 2 : 1);
      }
      if (a.kv_lengths.empty()) return;
      for (const Slot key : a.keys) a.kv_rows = std::max(a.kv_rows, op[key].dim(a.in == Layout::Bnsd ? 2 : 1));
    }
  }
  const int64_t most = a.keys.size() > 1 ? a.kv_rows : room;
  if (!per_request(op, a.kv_lengths, most, "actualSeqLengthsKv", a.requests, &Request::kv_length)) return;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    op.tiled(a.keys.size() == 1 || a.requests[i].kv_length <= op[a.keys[i]].dim(a.in == Layout::Bnsd ? 2 : 1),
             "actualSeqLengthsKv at " + std::to_string(i) + " is longer than its key");
    op.obeys(Rule::LatentRows, !absorbed || a.requests[i].length <= 16,
             "request " + std::to_string(i) + " has " + std::to_string(a.requests[i].length));
  }
}

void check_mask(Operator& op, Attention& a) {
  const bool given = op.given(a.mask);
  op.dtype(a.mask, {kBool, kInt8, kUint8});
  const bool ignored = !a.joined() && a.rows == 1 && a.rope_width == 0;
  if (ignored) a.sparse = 0;
  if (!op.tiled(a.sparse >= 0 && a.sparse <= 4, "sparseMode is " + std::to_string(a.sparse) + "; it may be 0 to 4"))
    return;
  if (a.joined()) {
    op.tiled((a.sparse == 0 && !given) || ((a.sparse == 3 || a.sparse == 4) && given),
             a.layout + " takes sparseMode 0 without a mask, or 3 or 4 with one; it is " + std::to_string(a.sparse) +
                 (given ? " with one" : " without"));
  }
  op.tiled(given || a.sparse == 0, "sparseMode " + std::to_string(a.sparse) + " needs attenMaskOptional");
  if (a.joined() && a.sparse == 4 && given) {
    const int64_t d = a.value_width;
    op.obeys(Rule::AttentionBandWidth, d == 64 || d == 128, "values have " + std::to_string(d));
    op.obeys(Rule::AttentionBand, a.before + a.after >= 0,
             "preTokens " + std::to_string(a.before) + ", nextTokens " + std::to_string(a.after));
  }
  if (!op.ok() || !given) return;
  const View& mask = op[a.mask];
  if (a.sparse >= 2) {
    a.masks = MaskKind::Shared;
    // The kernel for joined tokens of 9.1 lets it pass.
    const bool looks = a.sparse == 3 && (machine().cann != Cann::V9_1 || !joins_tokens(a));
    for (size_t i = 0; looks && i < a.requests.size(); ++i)
      op.obeys(
          Rule::AttentionCausalLength, a.requests[i].length <= a.requests[i].kv_length,
          std::to_string(a.requests[i].length) + " tokens over " + std::to_string(a.requests[i].kv_length) + " keys");
    const bool plane = mask.count() == 2048 * 2048 && mask.dim(-1) == 2048 && mask.dim(-2) == 2048;
    op.tiled(plane,
             "sparseMode " + std::to_string(a.sparse) + " needs a mask of 2048 x 2048, not " + text_of(mask.shape));
    return;
  }
  a.masks = MaskKind::Explicit;
  const int64_t lines = a.rows > 1 ? mask.dim(-2) : 1, room = a.pages == Pages::None ? 0 : op[a.table].dim(1) * a.page;
  int64_t longest = room;
  for (const Request& request : a.requests) longest = std::max(longest, request.kv_length);
  op.tiled(mask.rank() >= 2 && mask.rank() <= 4 && lines >= a.rows && mask.dim(-1) >= longest,
           "the mask " + text_of(mask.shape) + " needs " + std::to_string(a.rows) + " x " + std::to_string(longest));
  const int64_t planes = mask.count() / std::max<int64_t>(1, lines * mask.dim(-1));
  op.tiled(planes == 1 || planes == static_cast<int64_t>(a.requests.size()),
           "the mask needs one plane, or one per request");
}

}  // namespace

void check_attention(Operator& op, Attention& a) {
  if (!op.ok()) return;
  bool joined_heads = false;
  op.dtype(a.query, {kHalf, kBf16});
  op.valid(!a.keys.empty() && !a.values.empty(), "key and value must not be empty lists");
  for (const Slot slot : a.keys) op.same_dtype(slot, a.query);
  for (const Slot slot : a.values) op.same_dtype(slot, a.query);
  op.same_dtype(a.out, a.query);
  op.tiled(a.heads > 0, "numHeads must be positive");
  if (!op.ok() || !read_layout(op, a, joined_heads)) return;
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  op.tiled(a.kv_heads > 0 && a.heads % a.kv_heads == 0,
           std::to_string(a.kv_heads) + " key heads do not divide " + std::to_string(a.heads) + " heads");
  if (!op.ok() || !read_query(op, a, joined_heads)) return;
  op.tiled(!a.one_token || a.rows == 1, "takes one query token per request, not " + std::to_string(a.rows));
  op.tiled(a.precise >= 0 && a.precise <= (a.one_token ? 1 : 3), "innerPrecise " + std::to_string(a.precise));
  op.tiled(!a.joined() || a.precise == 0, "innerPrecise must be 0 in " + a.layout);
  const bool rope = op.given(a.query_rope), absorbed = rope && a.width == 512;
  op.valid(rope == op.given(a.key_rope), "queryRope and keyRope come together");
  if (a.joined() && !absorbed) {
    op.obeys(Rule::AttentionJoinedPages, !op.given(a.table), "inputLayout is " + a.layout);
    op.obeys(Rule::AttentionJoinedBf16, op[a.query].dtype == kBf16, "query is " + name_of(op[a.query].dtype));
  }
  op.obeys(Rule::AttentionJoinedTokens, !a.joined() || a.tokens <= 1048576, std::to_string(a.tokens) + " tokens");
  op.obeys(Rule::AttentionRatio, absorbed || a.heads / a.kv_heads <= 64,
           std::to_string(a.heads) + " heads over " + std::to_string(a.kv_heads));
  if (!op.ok()) return;
  if (op.given(a.table)) {
    check_pages(op, a, absorbed);
  } else {
    check_unpaged(op, a, joined_heads);
  }
  if (!op.ok()) return;
  if (rope) {
    op.same_dtype(a.query_rope, a.query);
    op.same_dtype(a.key_rope, a.query);
    a.rope_width = op[a.query_rope].dim(-1) / (joined_heads ? a.heads : 1);
    op.shape(a.query_rope, like_query(a, a.in, joined_heads, a.rope_width));
    op.tiled(a.keys.size() == 1, "keyRope and a list of keys do not go together");
    Dims expected = op[a.keys[0]].shape;
    if (a.pages == Pages::Fractal) {
      expected[2] = a.rope_width / 16;
    } else {
      expected.back() = expected.back() / a.width * a.rope_width;
    }
    op.shape(a.key_rope, expected);
  }
  check_widths(op, a, absorbed);
  check_sinks(op, a);
  op.shape(a.out, like_query(a, a.to, joined_heads, a.value_width));
  if (!op.ok()) return;
  read_lengths(op, a, absorbed);
  if (!op.ok()) return;
  check_mask(op, a);
  if (!a.wants_lse) return;
  op.dtype(a.lse, {kFloat});
  op.shape(a.lse, a.joined() ? Dims{a.tokens, a.heads, 1} : Dims{a.tokens, a.heads, a.rows, 1});
}

}  // namespace ascend_sim
