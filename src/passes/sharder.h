// Sharder: one run of the pass shard_over_ranks (shard_over_ranks.h has what it does): builds the graph of one rank out
// of that of the whole model, node by node, and keeps where each old value is in the new graph.
//
// The pass makes it for one graph and drops it afterwards; one thread. Its rules lie in files by their subject.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/pass.h"
#include "passes/rank_cut.h"
#include "passes/shard_over_ranks.h"

namespace reprise {

class Sharder {
 public:
  static constexpr const char* kPass = "shard_over_ranks";

  Sharder(Graph& g, PassContext& c, RankShare share, PartInputs inputs)
      : g_(g), c_(c), share_(share), inputs_(inputs), out_(g.name()) {}

  Status run();

 private:
  // A value of the old graph in the new one: whole, or this rank's columns (of [T, N]) or heads (of [T, H, D]).
  struct Placed {
    Value* value = nullptr;
    std::optional<Cut> cut;
    Value* gathered = nullptr;
    Value* groups =
        nullptr;           // borders of the groups, or of the part, of which this rank has the rows; null: it has all
    bool partial = false;  // it is a part of a sum that all ranks have parts of
    std::vector<Cut> pieces = {};  // columns of this rank's heads, in one piece or several; others' are never asked for
  };
  // Heads of a product's columns that stay together.
  struct HeadGroups {
    int64_t groups = 0, head_size = 0;
  };
  // How a call that continues states is cut.
  struct StateCut {
    Cut heads;                              // of the states; none where they have columns alone
    int64_t groups = 0, of_groups = 0;      // of those heads, and of all: a head of keys each
    std::vector<std::vector<Cut>> columns;  // by operand: in two sizes, or a parameter with a row for each column
  };

  // What every rule uses (shard_over_ranks.cpp).
  static Status refuse(const Node& n, std::string_view why) {
    return error(Code::Unsupported, "%{} ({}) cannot be cut over ranks: {}", n.result()->id, n.op->name, why);
  }
  static bool is_cut_cache(const Value& v) { return v.type.shape.rank() == 5; }
  // The author's word for how a call is cut; "none" where there is none.
  static std::string_view word_of(const Node& n);
  bool parted() const { return share_.sequences > 1; }
  // Ranks that have the same experts.
  int ways() const { return share_.size / share_.experts; }
  // Columns that one of these has of rows that lie packed: as many as the others, where they can be shared out so.
  Cut columns_of(int way, int64_t columns) const {
    const RankShare share{way, ways()};
    return columns % ways() == 0 ? share_of(columns, share) : share_of_columns(columns, share);
  }
  Placed& placed(const Value* v) { return at_.at(v); }
  Status visit(Node& n);
  // By the op's traits, once no operand has rows of own groups alone any more.
  Status by_traits(Node& n);
  Status input(const Node& n);
  // The call with these operands; what it gives is cut so.
  Status add(const Node& n, std::vector<Value*> in, const std::optional<Cut>& cut, Value* groups = nullptr);
  Result<Node*> call(std::string_view name, std::vector<Value*> in, Attrs attrs);
  Result<Value*> whole(const Value* old);
  // Operands from `from` on, whole; those before it stay empty.
  Result<std::vector<Value*>> all_whole(const Node& n, size_t from = 0);
  // A parameter with the result's columns: a matrix of them, or a row for each group.
  static bool has_columns(const Node& n, size_t i);
  // Operands with the result's columns are cut as it is, or all are whole.
  Status columns(const Node& n);
  Status view(const Node& n);
  // Vector by vector, of all heads that are here.
  Status vectors(const Node& n);

  // Rows of this rank's groups or part alone (shard_rows.cpp).
  // Rows of other ranks' groups come here.
  Status gather_rows(const Value* old);
  // Rows of own groups stay alone through an op that works row by row.
  Result<bool> keep_rows(const Node& n);
  // Heads of own rows, side by side.
  Result<bool> keep_rows_flat(const Node& n);
  // All columns of the rows that lie packed here for the rank's own experts, from the ranks that have the same experts.
  Result<Value*> own_columns(const Value* old);
  // The borders of the part's rows come first: other inputs are made by them.
  Status find_part();
  // An input that the rest needs, before others; null: the graph has none of that name.
  Result<Value*> early_input(std::string_view name);
  // Operand i as what works on the part's cache is given it: slots and borders are those of its rows.
  Result<Value*> beside_cache(const Node& n, size_t i);
  // Rows that a cache holds: of those that the step asks for, this rank has the ones of its part's sequences.
  Status rows_of_cache(const Node& n);

  // Parameters, whole and in parts (shard_params.cpp).
  // A parameter of one number, as a scale that serves all.
  static bool is_one_number(const Node& n, size_t i);
  Result<Value*> param(const Value* old);
  // This rank's part of a parameter that is `matrices` times cut.of units of `unit` rows, along its size `dim`.
  Result<Value*> param_part(const Value* old, int dim, int64_t matrices, int64_t unit, const Cut& cut);
  // The same of rows in several pieces, one behind the other.
  Result<Value*> param_pieces(const Value* old, const std::vector<Cut>& pieces);
  // What a parameter has for this rank's groups: of a matrix only the rows of `cut`, if there is one, or the columns.
  Result<Value*> group_part(const Value* old, const Cut& groups, const std::optional<Cut>& cut, bool columns = false);
  // Whether the loader makes some columns of it.
  bool takes_columns(const Value* old) const;
  // This rank's columns of a matrix.
  Result<Value*> column_part(const Value* old, const Cut& cut);
  // What is added to a sum that all ranks have parts of: rank 0 adds it, the others nothing.
  Result<Value*> added_once(const Value* old);
  Result<Value*> add_part(const Value* old, const TensorType& type, DerivedParam mine);
  std::vector<ParamPart> parts_of(const Value* old) const;

  // Experts that are shared out (shard_experts.cpp).
  // Only this rank's groups: their rows, with the matrices or other operands that each group has. Further ranks with
  // the same groups have other columns.
  Status groups(Node& n);
  // What each group has for every column meets the rows and columns that are here.
  Status group_columns(const Node& n);
  // The combining op of a choice of experts, where the device cannot gather rows of groups, whose borders it alone
  // knows, but combines over ranks.
  const Node* combined_over_ranks(const Node& n, const Cut& mine);
  // The calls around a choice of experts whose rows are sent to the ranks of these; without them `why` not.
  struct Sending {
    const Value* x = nullptr;          // rows of tokens
    std::vector<const Value*> sorted;  // what is gathered in the order of experts: x, or the results of ...
    const Node *quantise = nullptr, *combine = nullptr;
    std::string why;
  };
  // Rows that were sent: the call, and what it has brought of which values.
  struct SentRows {
    const Node* call = nullptr;
    std::vector<const Value*> sorted;
    Value* borders() const { return call->result(call->out.size() - 3); }
    Value* words() const { return call->result(call->out.size() - 2); }
    Value* counts() const { return call->result(call->out.size() - 1); }
  };
  // Whether one call sends all rows that are gathered so; else why not.
  static std::string find_rows(const Node& n, Sending& s);
  static std::string_view sends(const Sending& s) { return s.quantise ? "dispatch_quantised" : "dispatch_over_ranks"; }
  Sending sending(const Node& n, const Cut& mine);
  Status send(const Node& n, const Sending& s, const Cut& mine);
  Status gather_sent(const Node& n, const SentRows& rows);
  Status combine_sent(const Node& n);
  // All ranks choose and sort alike. Where the device combines over ranks, a rank goes on with the rows of its experts
  // alone: there is room for the most that there can be, and none is dropped.
  Status route(const Node& n);
  Status own_rows(const Node& n);
  Status combine(const Node& n);
  // Parts of the sums of a token's experts are added by the weights of its choice as sums are.
  Status combine_parts(const Node& n);
  Result<Value*> own_starts(const Value* starts, const Cut& mine);

  // Products and lookups (shard_products.cpp).
  Status linear(Node& n);
  // The rows of a token are written by the rank that has them.
  Status embedding(Node& n);
  // This rank's part of each sum, and the sum of all ranks' in their order. A last operand that is added and may be
  // left out is added behind it (the row-parallel rule of biases, F56).
  Status reduced(Node& n);
  // Why a product cannot give parts of sums; empty: it can.
  std::string why_not_reduced(const Node& n);
  std::string why_not_reduced(const Node& n, const Placed& x);
  // Whether rows that are quantised as they come are, on each rank, over its own columns alone: all that reads them
  // gives parts of sums, each in the scale of its rank.
  bool stays_cut(const Node& n);
  // Whether the device adds parts in fp32, which all ranks lay side by side before. Else its own all_reduce takes them
  // as its products make them, in the type of the result.
  bool adds_wide_parts() const;
  Result<Node*> sum_over_ranks(Value* part, std::vector<Value*> added, DType type);

  // Tokens drawn from the columns that ranks have (shard_draws.cpp).
  // Finds the call that draws tokens, if the vocabulary has enough blocks, and who draws them.
  void find_drawing();
  // Rows of a table, or columns of a product, cut so: the vocabulary of drawn tokens by whole blocks.
  Cut share_of_rows(int64_t rows) const;
  // Columns of logits that are cut by whole blocks.
  bool draws_here(const Value* logits);
  Status edit(Node& n);
  Status draw(Node& n);
  // What the device draws without whole logits; the tokens, as far as they are known.
  Result<Node*> draw_parts(const Node& n);
  // The host's rows, where it draws them or those that are undecided.
  Status give_own_logits(const Node& n, std::string_view what);

  // Heads (shard_heads.cpp).
  // A parameter with a number for every head.
  static bool is_by_head(const Node& n, size_t i);
  static bool carries_heads(const Node& n, size_t i);
  // Products whose columns are heads: how many of these stay together follows from what reads them.
  void find_groups(const Node& n);
  // The heads that an op works on here: those of its operands, or else of the cache beside them.
  Result<std::optional<Cut>> heads_here(const Node& n);
  Status per_head(const Node& n);
  // Attention meets the rows of its part alone, with its share of the heads. What makes heads of heads does so where
  // they are.
  Status per_head_of_part(const Node& n);
  Status heads_of_own_rows(const Node& n);
  // Some heads of a value in three sizes, of which all ranks have all.
  Result<Value*> own_heads(const Value* v, const Cut& cut);

  // Adapters (shard_adapters.cpp).
  // Matrices in memory of the engine's, each with a column for each column of the result that reads them.
  static bool is_stack(const Value& v);
  static size_t stack_of(const Node& n);  // which operand is one; none: as many as there are
  Status add_stack(const Node& n, size_t stack);
  // These columns of each matrix; the input's name says which.
  Result<Value*> stack_part(const Value* old, const std::vector<Cut>& pieces);

  // States (shard_states.cpp).
  // Heads of a state that are here, and what makes their columns.
  void find_states(const Node& n);
  void find_columns(const Value* v, const std::vector<Cut>& pieces);
  void find_gates(const Node& n);
  static const Value* behind_columns(const Value* v);
  Status continue_state(const Node& n);
  Status linear_in_pieces(const Node& n, const std::vector<Cut>& pieces);
  // These columns of a value, made alone or taken from all.
  Result<Value*> own_columns(const Value* v, const std::vector<Cut>& pieces);

  Graph& g_;
  PassContext& c_;
  RankShare share_;
  PartInputs inputs_;
  Graph out_;
  Value* part_ = nullptr;     // borders of the rows of this rank's part, or marks of them; null: there is one part
  bool staged_part_ = false;  // marks: what differs over parts is staged
  std::unordered_map<const Value*, Placed> at_;
  std::unordered_map<const Node*, HeadGroups> groups_;
  const Node* drawing_ = nullptr;  // the call that draws tokens, where ranks do so without whole logits ...
  int64_t vocabulary_ = 0;         // ... from so many; 0: it is not there
  bool drawn_here_ = false;        // the device has kernels for that ...
  bool gathers_rows_ = false;      // ... and gathers the rows of logits that these do not decide; else hosts draw
  Value* merged_ = nullptr;        // its tokens, as far as they are known without whole logits
  Value* own_logits_ = nullptr;    // what hosts draw from
  std::unordered_map<const Node*, StateCut> states_;
  std::unordered_map<const Node*, std::vector<Cut>> products_;             // whose columns are pieces
  std::unordered_map<const Value*, std::pair<int, int64_t>> state_sizes_;  // of an input: which size is how large here
  std::unordered_map<const Value*, Value*> own_indices_;                   // of an input, those of this rank's part
  std::unordered_map<const Value*, Value*> borders_;                       // of all groups, and of this rank's
  std::unordered_map<const Value*, Value*> own_rows_;  // rows sorted by expert, and of these this rank's alone
  std::unordered_map<const Value*, SentRows> sent_;    // rows sorted by expert, and the call that sends them
  std::unordered_set<const Value*> packed_;            // borders of rows that are here alone, from 0 on
};

}  // namespace reprise
