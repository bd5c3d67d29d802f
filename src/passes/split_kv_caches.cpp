#include <algorithm>

#include "ops/core.h"
#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr const char* kSplitKvCaches = "split_kv_caches";
constexpr size_t kSinks = 5;  // of paged_attention

// One name of a joined cache, from a write to the next: who reads it, and who writes it next.
struct Stage {
  std::vector<Node*> reads;  // paged_attention
  Node* write = nullptr;     // kv_write; null at the end
};

// A cache with keys and values in it, and every call on it.
struct Joined {
  Node* input = nullptr;
  std::vector<Stage> stages;
  Node* stranger = nullptr;  // a call that knows only the joined form
  bool returned = false;     // the graph gives it out
};

class Splitter {
 public:
  Splitter(Graph& g, PassContext& c) : g_(g), c_(c) {}

  Status run() {
    std::vector<Node*> inputs;
    for (Node* n = g_.first(); n; n = n->next)
      if (is_joined(*n->result())) inputs.push_back(n);
    for (Node* n : inputs) {
      const std::string name = n->attrs.text("name");  // the node goes
      RETURN_IF_ERROR(visit(n).at(name));
    }
    return Status::ok();
  }

 private:
  bool writes(const Use& u) const { return u.user->op == kv_write_ && u.declared().role == OperandRole::Cache; }
  bool reads(const Use& u) const { return u.user->op == joined_attention_ && u.declared().role == OperandRole::Cache; }
  // A cache of rows has three sizes; keys and values in one have five.
  static bool is_joined(const Value& v) { return is_cache(v) && v.type.shape.rank() == 5; }

  Joined follow(Node* input) const {
    Joined j;
    j.input = input;
    for (Value* v = input->result(); v;) {
      Stage s;
      Value* next = nullptr;
      for (const Use& u : v->uses) {
        if (writes(u))
          s.write = u.user;
        else if (reads(u))
          s.reads.push_back(u.user);
        else
          j.stranger = u.user;
        if (u.user->op->mutated_operand() == static_cast<int>(u.operand)) next = u.user->result();
      }
      j.returned |= !v->outputs.empty();
      j.stages.push_back(std::move(s));
      v = next;
    }
    return j;
  }

  // Ok when every call on the cache has a kernel as it is.
  Status joined_kernels(const Joined& j) const {
    for (const Stage& s : j.stages) {
      for (const Node* n : s.reads) RETURN_IF_ERROR(c_.has_kernel(*n->op, n->in_types(), n->attrs));
      if (s.write) RETURN_IF_ERROR(c_.has_kernel(*s.write->op, s.write->in_types(), s.write->attrs));
    }
    return Status::ok();
  }

  // Ok when they would have one on two caches of this dtype.
  Status split_kernels(const Joined& j, DType dtype) const {
    const TensorType cache = split_type(*j.input, dtype);
    for (const Stage& s : j.stages) {
      for (const Node* n : s.reads) {
        std::vector<TensorType> in = n->in_types();
        if (in.size() > attention_->operands.size() - 1)
          return error(Code::Unsupported, "{} has no operand for {} of %{} ({})", attention_->name,
                       n->op->operands[in.size() - 1].name, n->result()->id, n->op->name);
        in[1] = cache;
        if (in.size() > kSinks) in[kSinks] = rows_type(n->in[kSinks]->type, n->in[0]->type.dtype);
        in.insert(in.begin() + 2, cache);
        RETURN_IF_ERROR(c_.has_kernel(*attention_, in, n->attrs));
      }
      if (!s.write) continue;
      const TensorType& k = s.write->in[1]->type;
      const std::vector<TensorType> in{cache, {k.dtype, {k.shape[0], cache.shape[2]}}, s.write->in[3]->type};
      RETURN_IF_ERROR(c_.has_kernel(*row_write_, in, {}));
    }
    return Status::ok();
  }

  // [P, 2, G, 128, D] as [P, 128, G D].
  static TensorType split_type(const Node& input, DType dtype) {
    const TensorType& joined = input.result()->type;
    const Dim heads = joined.shape[2];
    return {dtype, {joined.shape[0], Dim(kPageTokens), Dim(heads.factor * kv_head_size(joined).factor)}};
  }

  static TensorType rows_type(TensorType type, DType dtype) {
    type.dtype = dtype;
    return type;
  }

  // Sinks in the type of the query: the loader gives what it reads for them that type.
  Status narrow_sinks(const Node& n) {
    Value* sinks = n.in[kSinks];
    const DType dtype = n.in[0]->type.dtype;
    if (sinks->type.dtype == dtype) return Status::ok();
    if (!sinks->def->is_param())
      return error(Code::Unsupported, "%{} ({}): sinks in {} that are no parameter; allowed: {}", n.result()->id,
                   n.op->name, dtype_name(sinks->type.dtype), dtype_name(dtype));
    sinks->type.dtype = dtype;
    return Status::ok();
  }

  Status visit(Node* input) {
    const Joined j = follow(input);
    c_.count_tried();
    const Status why = joined_kernels(j);
    if (why.is_ok()) return Status::ok();
    const DType cache = input->result()->type.dtype;
    if (Status split = split_kernels(j, cache); !split.is_ok()) {
      const DType model = dtype_of_rows(j);
      if (model != cache && split_kernels(j, model).is_ok())
        return error(Code::Unsupported,
                     "a KV cache of {}: this device keeps keys and values in caches of their own, in the model's "
                     "dtype; `kv_cache_dtype` auto asks for {}",
                     dtype_name(cache), dtype_name(model));
      return error(Code::Unsupported, "{}; nor on keys and values in one cache: {}", split.message(), why.message());
    }
    if (j.stranger)
      return error(Code::Unsupported,
                   "%{} ({}) works on keys and values in one cache, but other calls on it do not: {}",
                   j.stranger->result()->id, j.stranger->op->name, why.message());
    if (j.returned)
      return error(Code::Unsupported, "the graph returns a cache that the device cannot hold in one piece");
    if (!c_.may_apply(*input)) return Status::ok();
    c_.applied(*input, fmt::format("{} becomes two: {}", input->attrs.text("name"), why.message()));
    return split(j);
  }

  static DType dtype_of_rows(const Joined& j) {
    for (const Stage& s : j.stages) {
      if (s.write) return s.write->in[1]->type.dtype;
      if (!s.reads.empty()) return s.reads.front()->in[0]->type.dtype;
    }
    return j.input->result()->type.dtype;
  }

  Status split(const Joined& j) {
    const std::string name = j.input->attrs.text("name");
    const TensorType type = split_type(*j.input, j.input->result()->type.dtype);
    ASSIGN_OR_RETURN(Node * keys_in, g_.add_source(*j.input->op, name + ".keys", type, kSplitKvCaches, j.input));
    ASSIGN_OR_RETURN(Node * values_in, g_.add_source(*j.input->op, name + ".values", type, kSplitKvCaches, j.input));
    Value *keys = keys_in->result(), *values = values_in->result();
    for (const Stage& s : j.stages) {
      for (Node* n : s.reads) {
        std::vector<Value*> in{n->in[0], keys, values, n->in[2], n->in[3], n->in[4]};
        if (n->in.size() > kSinks) {
          RETURN_IF_ERROR(narrow_sinks(*n));
          in.push_back(n->in[kSinks]);
        }
        ASSIGN_OR_RETURN(Node * made, g_.add(*attention_, std::move(in), n->attrs, kSplitKvCaches, n));
        g_.replace_all_uses(n->result(), made->result());
        g_.erase(n);
      }
      if (!s.write) continue;
      ASSIGN_OR_RETURN(keys, write(keys, *s.write, 1));
      ASSIGN_OR_RETURN(values, write(values, *s.write, 2));
    }
    for (auto s = j.stages.rbegin(); s != j.stages.rend(); ++s)
      if (s->write) g_.erase(s->write);
    g_.erase(j.input);
    return Status::ok();
  }

  // Operand i of a kv_write, into a cache of its own.
  Result<Value*> write(Value* cache, Node& joined, size_t i) {
    ASSIGN_OR_RETURN(Node * rows, g_.add(*flatten_, {joined.in[i]}, {}, kSplitKvCaches, &joined));
    ASSIGN_OR_RETURN(Node * made,
                     g_.add(*row_write_, {cache, rows->result(), joined.in[3]}, {}, kSplitKvCaches, &joined));
    return made->result();
  }

  Graph& g_;
  PassContext& c_;
  const OpSchema* kv_write_ = c_.ops().find("kv_write");
  const OpSchema* joined_attention_ = c_.ops().find("paged_attention");
  const OpSchema* attention_ = c_.ops().find("paged_attention_rows");
  const OpSchema* row_write_ = c_.ops().find("row_write");
  const OpSchema* flatten_ = c_.ops().find("flatten");
};

Status split_all(Graph& g, PassContext& c) { return Splitter(g, c).run(); }

}  // namespace

Pass split_kv_caches() { return {kSplitKvCaches, true, split_all}; }

}  // namespace reprise
