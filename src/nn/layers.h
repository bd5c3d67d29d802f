// Layers that several architectures share: the step's inputs, grouped-query attention over the paged cache or, where
// rows see both sides, over the rows of the step, the gated MLP. Each is a few calls of nn/functional.h and nothing
// more. Plain functions; the trace that their tensors belong to is one thread's.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nn/functional.h"
#include "nn/param_scope.h"

namespace reprise::nn {

// The staged inputs and the caches of a step, as the family declares them (models/step_spec.h). C is the number of
// page-table columns. What writes into a cache replaces its entry by the cache as it is after the write.
struct StepInputs {
  Tensor tokens;        // [T] i32
  Tensor positions;     // [T] i32
  Tensor slots;         // [T] i32, where each token's key and value go; negative: nowhere
  Tensor page_table;    // [R, C] i32
  Tensor context_lens;  // [R] i32, keys of each sequence including this step's
  Tensor cu_seqlens;    // [R + 1] i32, first row of each sequence
  Tensor last_rows;     // [L] i32, rows whose logits are wanted
  // How their tokens are drawn; absent where none is.
  Tensor draws;        // [L, 10] i32 (ops/draw.h)
  Tensor edits;        // [E, 10] i32, rows of logits that are changed first (ops/logit_edit.h)
  Tensor edit_words;   // [W] i32, what `edits` point at
  Tensor state_read;   // [R] i32, the slot that holds each sequence's state before the step
  Tensor state_write;  // [R] i32, the slot that its state after the step goes to; negative: nowhere
  Tensor drafts;       // [R, 2] i32, drafts of the step before that came true, and of this step; absent: none ever
  std::map<std::string, Tensor, std::less<>> added;  // by name: what a family declares besides
  std::map<std::string, Tensor, std::less<>> caches;
  std::vector<int64_t> kept_rows;  // layers whose input rows are kept (models/draft_head.h)

  Tensor more(std::string_view name) const;             // CHECKs that it is declared
  Tensor& cache(std::string_view name, int64_t layer);  // likewise
};

inline std::string cache_name(std::string_view name, int64_t layer) { return fmt::format("{}.{}", name, layer); }

// A norm over the last size with parameters "<p>.weight" and, where it has one, "<p>.bias".
using Norm = Tensor (*)(Tensor x, const ParamScope& p, double eps);
Tensor rms_norm(Tensor x, const ParamScope& p, double eps);
Tensor rms_norm_centred(Tensor x, const ParamScope& p, double eps);
Tensor unit_rms_norm(Tensor x, const ParamScope& p, double eps);      // without parameters
Tensor layer_norm(Tensor x, const ParamScope& p, double eps);         // without a bias
Tensor layer_norm_biased(Tensor x, const ParamScope& p, double eps);  // with one
// The same of every head, by weights of its own: [T, H, D] with parameter "<p>.weight" [H, D].
Tensor layer_norm_of_heads(Tensor x, const ParamScope& p, double eps);

enum class Rotation : uint8_t { None, Halves, Neighbours };
// Where queries and keys are normed: head by head or over all of them before the rotation, or head by head behind it.
enum class QkNorm : uint8_t { Heads, Row, Rotated };

struct AttentionSpec {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;  // 0: the whole context
  int64_t chunk = 0;   // > 0: the context's chunk of so many tokens; not beside a window
  // Rows see those behind them as well, within the window on both sides: nothing is cached, and there are neither caps
  // of scores nor sinks.
  bool both_sides = false;
  bool qkv_bias = false;
  bool output_bias = false;
  double qk_norm_eps = 0;  // > 0: queries and keys are normed
  QkNorm qk_norm = QkNorm::Heads;
  Norm norm = rms_norm;
  std::string_view q_norm = "q_norm", k_norm = "k_norm";
  Rotation rotation = Rotation::Halves;
  Tensor query_factor = {};  // [T, 1] f32 that each row's queries are multiplied with, or none
  double scale = 0;          // of the scores; 0: 1 / sqrt(head_dim)
  double softcap = 0;        // of the scores; 0: none
  bool fused = false;        // the three projections are rows of "qkv_proj"
  bool sinks = false;        // a score of each head without a value: parameter "sinks"
  int64_t out = 0;           // columns of the result; 0: as many as x has
};

struct MlpSpec {
  int64_t intermediate = 0;
  bool bias = false;
  bool fused = false;                    // gate_proj and up_proj are rows of "gate_up_proj"
  std::string_view activation = "silu";  // or gelu, gelu_tanh
};

// linear with parameters "<p>.weight" and "<p>.bias"
Tensor linear(Tensor x, const ParamScope& p, int64_t features, bool bias, Shard shard);
// The same with rows [first, first + features) of `of` rows of "<p>.weight".
Tensor linear_rows(Tensor x, const ParamScope& p, int64_t first, int64_t features, int64_t of, Shard shard);
Tensor activate(Tensor x, std::string_view activation);

// [T, N] -> [T, N]; parameters q_proj, k_proj, v_proj, o_proj (and q_norm, k_norm). `table` is rope_table's; no
// rotation reads none.
Tensor attention(Tensor x, const AttentionSpec& spec, Tensor table, StepInputs& in, int64_t layer, const ParamScope& p);
// down(act(gate(x)) * up(x)); parameters gate_proj, up_proj, down_proj
Tensor gated_mlp(Tensor x, const MlpSpec& spec, const ParamScope& p);
Tensor gated_mlp(Tensor x, int64_t intermediate, bool bias, const ParamScope& p);

}  // namespace reprise::nn
