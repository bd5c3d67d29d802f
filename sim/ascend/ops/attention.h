// Attention: what the three attention operators ask for in one form, checked and then computed by one kernel.
//
// attention_check.cpp turns the arguments into requests or refuses them, attention.cpp computes; the operators
// themselves, in attention_ops.cpp, only say which arguments they have. Values, noted in phase 1.
#pragma once

#include <string>
#include <vector>

#include "ascend/ops/executor.h"

namespace ascend_sim {

enum class Layout : uint8_t { Bsnd, Bnsd, Tnd, Ntd };  // BSH is BSND with its last two dimensions joined
enum class Pages : uint8_t { None, Rows, HeadMajor, Fractal };
enum class MaskKind : uint8_t { None, Shared, Explicit };

struct Request {
  int64_t first = 0, length = 0;        // query tokens; `first` only where tokens of all requests are joined
  int64_t kv_first = 0, kv_length = 0;  // `kv_first` only where they are joined and not paged
};

struct Attention {
  // As given.
  Slot query, out, lse, mask, table, query_rope, key_rope, sinks;
  std::vector<Slot> keys, values;
  Dims lengths, kv_lengths;
  int64_t heads = 0, kv_heads = 0, before = 0, after = 0, sparse = 0, precise = 0, page = 0;
  double scale = 1;
  std::string layout;
  bool wants_lse = false;
  bool one_token = false;  // IncreFlashAttention: nothing but decoding
  bool has_pages = true;   // PromptFlashAttention has none
  bool sunk = false;       // each head has a sink

  // As found by check().
  Layout in = Layout::Bsnd, to = Layout::Bsnd;
  Pages pages = Pages::None;
  MaskKind masks = MaskKind::None;
  int64_t width = 0, value_width = 0, rope_width = 0, rows = 0, kv_rows = 0, tokens = 0, kv_tokens = 0;
  std::vector<Request> requests;

  // Joined tokens of 9.1 whose sinks the general kernel adds.
  bool sunk_apart = false;

  bool joined() const { return in == Layout::Tnd || in == Layout::Ntd; }
  // The last key that a query row may see, plus one, by its sparse mode; and the first.
  int64_t limit(const Request& request, int64_t row) const;
  int64_t begin(const Request& request, int64_t row) const;
};

// Fills the second half; the operator notes what is wrong.
void check_attention(Operator& op, Attention& attention);
void compute_attention(const Attention& attention, const Operands& operands);
double attention_operations(const Attention& attention);
double attention_bytes(const Operator& op, const Attention& attention);
// Whether the kernel for joined tokens runs it; others run by the general one, and absorbed heads by one of their own.
bool joins_tokens(const Attention& attention);
// Workspace for these lengths; with `bound` the most that any lengths need.
uint64_t attention_workspace(const Operator& op, const Attention& attention, bool bound);

}  // namespace ascend_sim
