// StepSpec: what a model family declares of a step: the inputs that are staged before it and the caches that it leaves.
//
// The trace, the staging, the pools of caches, the checks and `graph verify` go by this declaration, and no other place
// lists inputs: a further input is an entry of StepSpec::inputs with its producer. default_step() is what a decoder
// declares. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "base/tensor_view.h"
#include "checkpoint/config.h"
#include "kv/kv_pool.h"
#include "kv/state_pool.h"
#include "models/placed_image.h"
#include "nn/layers.h"
#include "ops/draw.h"
#include "ops/row_edits.h"

namespace reprise::models {

struct TraceOptions {
  DType dtype = DType::BF16;       // of parameters and activations
  DType kv_dtype = DType::BF16;    // of the cache
  DType index_dtype = DType::I32;  // of token ids, positions, slots and tables (DeviceInfo::index_dtype)
  int64_t max_tokens = 2048;       // bound of T
  int64_t max_sequences = 64;      // bound of R
  int64_t max_logit_rows = 0;      // bound of L; 0: that of R
  int64_t max_pages = 64;          // C: page-table columns, pages one sequence may have
  int64_t pool_pages = 4096;       // bound of P
  bool sampling = false;           // "sampled" and what belongs to it besides the logits
  int64_t sequence_parts = 1;      // parts of a world over which sequences are shared out
  int64_t adapter_slots = 0;       // LoRA adapters that rows may name; 0: rows name none
  bool images = false;             // tokens may be rows of images (models/image_step.h)
  // For a model that drafts from these (models/draft_head.h): layers whose input rows are kept; the number of layers
  // stands for what the model's head reads.
  std::vector<int64_t> kept_rows = {};
  int64_t source_width = 0;  // of such a model: numbers of a row that its source keeps
  // Where sequences keep states: drafts that one may have in a step. States are larger by what these would change.
  int64_t most_drafts = 0;
  int64_t token_shares = 1;    // ranks that share out the tokens of a step for their experts
  bool parts_on_host = false;  // the host reads what differs over parts, so each rank stages its own
  static constexpr int64_t kMostDrafts = 15;

  // W: words for the changes of logits in one step: a mask for every sequence, and so many more for biases and
  // penalties of each on average.
  static constexpr int64_t kListWords = 4096;
  int64_t edit_words(int64_t vocabulary) const { return max_sequences * (mask_words(vocabulary) + kListWords); }
};

// Names of the symbols, in the order of their ids.
// T tokens, R sequences, Q = R + 1, L rows with logits, P pages of the pool; where tokens are drawn or states kept also
// E rows whose logits are changed; S slots of the pool of states; H pages of another
// engine's pool, whose rows a head drafts from; D tokens, rounded up to a multiple of TraceOptions::token_shares
enum StepSymbol : SymbolId {
  kTokens = 1,
  kSequences,
  kCuSeqlens,
  kLogitRows,
  kPoolPages,
  kEditedRows,
  kStateSlots,
  kSourcePages,
  kSharedTokens
};

// Where the rows are that a drafting head reads for a sequence (models/draft_head.h).
struct SourceRows {
  std::span<const kv::PageId> pages = {};  // of the text's sequence in the source
  int64_t computed = 0;                    // its first rows, which the source has computed; behind them the head's own
  bool leave = false;                      // the last row of the step is one to go on from
};

// One sequence's part of a step.
struct StepPart {
  std::span<const int32_t> tokens;    // all of the sequence so far; a negative one is known to the device alone
  std::span<const int32_t> drafts;    // guesses of what comes behind them: the last of the count
  std::span<const kv::PageId> pages;  // hold at least cached + count tokens
  int64_t cached = 0;                 // tokens already in the caches
  int64_t count = 0;                  // the next ones, computed in this step
  int64_t logit_rows = 0;             // of the last so many of them
  int part = 0;                       // of the world, whose cache has the pages; parts come in order
  int32_t adapter = 0;                // LoRA slot of all its rows; 0: none
  const Draw* draw = nullptr;         // how the tokens behind the last own one and behind each draft are drawn
  const RowEdits* edits = nullptr;    // what changes the logits of these rows first; null: nothing does
  kv::SlotId state_read = kv::kZeroSlot, state_write = kv::kScratchSlot;
  int64_t came_true = 0;                     // drafts behind the state that is read, of the step that left it
  int64_t second_kind = INT64_MAX;           // tokens from here on are of the second kind
  std::span<const PlacedImage> images = {};  // of the sequence, in the order of its tokens
  const SourceRows* source = nullptr;        // of a head that drafts; null: it reads and leaves no rows

  int32_t token(int64_t at) const {
    const auto i = static_cast<size_t>(at);
    return i < tokens.size() ? tokens[i] : drafts[i - tokens.size()];
  }
  int64_t drawn_rows() const { return draw ? 1 + static_cast<int64_t>(drafts.size()) : 0; }
};

// What a producer sees of a step.
struct StepRows {
  std::span<const StepPart> parts;
  bool skips_negative_slots = true;  // DeviceInfo::skips_negative_slots
  int64_t vocabulary = 0;
  int64_t hidden = 0;  // numbers of a row of an image
  // Pages of the pool that are handed out, and those for rows of no sequence (kv/kv_pool.h).
  int64_t pages = 0, scratch_pages = 1;

  int64_t edited() const;      // rows whose logits are changed
  int64_t edit_words() const;  // i32 that their masks and lists take

  // Where a row of no sequence writes: in a cache of pages, where rows are tokens, or of states, where they are
  // sequences. As many rows behind one another as the scratch pages have room for have places of their own.
  int32_t no_page_slot(int64_t row) const;
  int32_t no_state_slot() const { return skips_negative_slots ? -1 : kv::kScratchSlot; }
};

// Gets the whole input at its bounds and writes all of it: what is beyond the step gets a value that does no harm. An
// input with InputSpec::used is read only where other inputs point, and keeps older numbers behind that.
using Producer = void (*)(const StepRows& step, const TensorView& out);

struct InputSpec {
  std::string name;
  TensorType type;  // sizes by the ids of StepSymbol; integers of TraceOptions::index_dtype, or another type
  Producer producer = nullptr;
  Tensor nn::StepInputs::*member = nullptr;  // null: the forward function finds it as StepInputs::more(name)
  // Elements of the step, the first ones: no more is sent to the device. Null: all.
  int64_t (*used)(const StepRows& step) = nullptr;
  // Names where a row's results are written. Rows of sequences that have gone get nowhere instead.
  bool destination = false;
  // For checks: rows beyond the step may hold any number below this one; 0: they must keep what the producer gave.
  Dim padding_below = {};
  // For `graph verify`: changes row `row` of a decode step so that the result of this row changes, and no other. False:
  // there is nothing to change. Null: no row depends on it alone.
  bool (*change)(const TensorView& input, int64_t row, const LiveSizes& live) = nullptr;
};

// kSharedTokens of so many tokens.
constexpr int64_t in_equal_shares(int64_t tokens, int64_t shares) { return (tokens + shares - 1) / shares * shares; }

struct CacheSpec {
  enum class Kind : uint8_t {
    Paged,        // what attention remembers of tokens: rows of pages, which the prefix cache shares
    PerSequence,  // the state of a sequence behind its tokens so far: a slot of the pool of states
    Source,       // rows in the pages of another engine (models/draft_head.h)
  };
  std::string name;
  Kind kind = Kind::Paged;
  DType dtype = DType::BF16;
  Shape shape;  // of a page, or of a state
  // Whether a step may run twice in the same memory of this cache, because it reads nothing of what it writes. Where it
  // may not, the pool keeps the state before the step: the step reads one slot (input "state_read") and writes another
  // ("state_write"). slots_per_sequence() and check() alone read this field. A replay check, a warm-up and the retry of
  // a failed step do not: with enough slots all of them may run any step again.
  bool idempotent = true;
};

struct StepSpec {
  std::vector<InputSpec> inputs;
  std::vector<CacheSpec> caches;
  int64_t token_shares = 1;  // TraceOptions::token_shares

  bool has_states() const;
  bool has_source() const;  // it is a head that drafts
  // Slots of states that a sequence needs when so many steps are in flight: one for each that writes, and one for the
  // state before the first of them; one in all where states are idempotent.
  int slots_per_sequence(int steps_in_flight) const;
  // Names that are used twice, caches that the engine cannot keep.
  Status check() const;
};

// Inputs that the engine or its checks look at by themselves.
constexpr std::string_view kTokensInput = "tokens", kSlotsInput = "slots", kPageTableInput = "page_table",
                           kLengthsInput = "context_lens", kCuSeqlensInput = "cu_seqlens", kDrawsInput = "draws",
                           kEditsInput = "edits", kEditWordsInput = "edit_words", kPartRowsInput = "part_rows",
                           kOwnSlotsInput = "own_slots", kOwnCuSeqlensInput = "own_cu_seqlens",
                           kOwnRowsInput = "own_rows", kStateWriteInput = "state_write",
                           kStateDraftsInput = "state_drafts", kAdapterIdsInput = "adapter_ids";
// Where the host reads what differs over parts of a world: slots and cu_seqlens of the rows of one part alone, which
// are nowhere and empty for the others, and 1 for each of its rows. Each rank makes its own of what was staged for all.
struct PartViews {
  std::span<const int32_t> part_rows, slots, cu_seqlens;
  std::span<int32_t> own_slots, own_cu_seqlens, own_rows;
};
void see_part(const PartViews& views, int part, const StepRows& none);
// Caches of hidden states: those that a model keeps, and those of another model that a head reads.
constexpr std::string_view kKeptRows = "kept_rows", kSourceRows = "source_rows";

// Token ids, positions, slots, tables and the rows with logits; keys and values of every layer in "kv.<layer>", or
// latents in "c_kv.<layer>" and "k_pe.<layer>".
StepSpec default_step(const checkpoint::ModelConfigFields& fields, const TraceOptions& trace);
// What a family with caches of Kind::PerSequence adds: [R] the slots that states are read from and written to; and
// where TraceOptions::most_drafts asks for it, [R, 2] the drafts that came true behind the one, and those behind the
// other. A state is that of a sequence behind its own tokens; a slot has besides what each draft would change of it.
std::vector<InputSpec> state_inputs(const TraceOptions& trace);

// What a family of encoders declares: token ids, positions, cu_seqlens and the rows of results; [T] kinds of tokens
// ("token_types"), and [L] the first row of each sequence with a result ("first_rows"). Nothing is cached.
StepSpec encoder_step(const TraceOptions& trace);

// The integers of a staged input.
inline std::span<int32_t> ints(const TensorView& v) {
  return {static_cast<int32_t*>(v.data), static_cast<size_t>(v.elements())};
}

}  // namespace reprise::models
