#include <algorithm>

#include "nn/param_name.h"
#include "nn/row_ranges.h"
#include "passes/house_passes.h"
#include "passes/keep_blocks.h"

namespace reprise {
namespace {

using checkpoint::LinearQuant;
using checkpoint::LinearScheme;
using checkpoint::LinearStorage;

constexpr const char* kName = "quantise_linears";

class Quantiser {
 public:
  Quantiser(Graph& g, PassContext& c, const checkpoint::QuantPlan& plan) : g_(g), c_(c), plan_(plan) {}

  Status run() {
    RETURN_IF_ERROR(keep_blocks(g_, c_, plan_, kName));
    for (Node* n = g_.first(); n;) {
      Node* next = n->next;
      if (n->is_param()) RETURN_IF_ERROR(dequantise(n));
      if (n->op == linear_ && n->in[1]->def->is_param()) {
        const std::string weight = n->in[1]->def->attrs.text("name");
        const LinearQuant& q = plan_.of(nn::tensor_of_param(weight));
        // What an expert is chosen by stays exact, unless the checkpoint itself has it in int8.
        if (is_int8(q) && !(q.storage == LinearStorage::Floats && is_gate(*n))) {
          c_.count_tried();
          if (c_.may_apply(*n)) RETURN_IF_ERROR(quantise(n, weight, q).at(weight));
        }
      } else if (n->op == grouped_linear_ && n->in[2]->def->is_param()) {
        const std::string stack = n->in[2]->def->attrs.text("name");
        RETURN_IF_ERROR(quantise_stack(n, stack).at(stack));
      }
      n = next;
    }
    g_.remove_dead();  // biases that a folded one replaces
    return Status::ok();
  }

 private:
  static bool is_int8(const LinearQuant& q) {
    return q.scheme == LinearScheme::W8A8Static || q.scheme == LinearScheme::W8A8Dynamic;
  }

  // A router, or the gate of a shared expert, which is one number a token.
  bool is_gate(const Node& n) const {
    const bool one = same_dim(n.result()->type.shape[1], Dim(1));
    return std::any_of(n.result()->uses.begin(), n.result()->uses.end(), [&](const Use& u) {
      return u.user->op->has(op_trait::kRoutes) || (one && u.user->op == sigmoid_);
    });
  }

  Result<const OpSchema*> op(std::string_view name) const {
    if (const OpSchema* o = c_.ops().find(name)) return o;
    return error(Code::Unsupported, "there is no op {}", name);
  }

  // Says how the loader makes the parameter, unless it is the tensor of that name as it stands.
  void derive(const std::string& name, std::vector<ParamPart> parts) {
    const ParamPart& part = parts.front();
    if (parts.size() > 1 || part.tensor != name || part.recipe != Recipe::Converted || part.columns)
      c_.derived().push_back({name, std::move(parts)});
  }

  Result<Value*> param(const std::string& name, TensorType type, std::vector<ParamPart> parts, Node* before) {
    if (Node* known = g_.find_param(name)) {
      if (known->result()->type.dtype == type.dtype) return known->result();
      return error(Code::Internal, "parameter {} is wanted with two types", name);
    }
    ASSIGN_OR_RETURN(const OpSchema* source, op("param"));
    ASSIGN_OR_RETURN(Node * made, g_.add_source(*source, name, type, kName, before));
    derive(name, std::move(parts));
    return made->result();
  }

  // The float parameter with another element type: itself where linears are all that read it in this place, else a copy
  // (an embedding table that is the head as well).
  Result<Value*> retyped(Node* n, uint32_t operand, DType dtype, const char* ending, std::vector<ParamPart> parts) {
    Value* v = n->in[operand];
    if (v->type.dtype == dtype) return v;
    const std::string name = v->def->attrs.text("name");
    const bool own = std::all_of(v->uses.begin(), v->uses.end(),
                                 [&](const Use& u) { return u.user->op == n->op && u.operand == operand; });
    const TensorType type{dtype, v->type.shape};
    if (!own) return param(name + ending, type, std::move(parts), n);
    v->type = type;  // its other readers are rewritten in their turn
    derive(name, std::move(parts));
    return v;
  }

  // The call that makes i8 [T, K] and, when dynamic, f32 [T, 1]. Linears with the same input and numbers share it.
  Result<Node*> quantised_input(Value* x, const std::string& module, const LinearQuant& q, Node* before) {
    for (const Made& m : made_)
      if (m.x == x && m.scheme == q.scheme && m.scale == q.input_scale && m.offset == q.input_offset) return m.node;
    Node* node = nullptr;
    if (q.scheme == LinearScheme::W8A8Dynamic) {
      ASSIGN_OR_RETURN(const OpSchema* quantize, op("quantize_dynamic"));
      ASSIGN_OR_RETURN(node, g_.add(*quantize, {x}, {}, kName, before));
    } else {
      const TensorType one{DType::F32, {Dim(1)}};
      ASSIGN_OR_RETURN(Value * scale, param(module + ".input_scale_reciprocal", one,
                                            {{module + ".input_scale", 1, Recipe::Reciprocals}}, before));
      ASSIGN_OR_RETURN(Value * offset, param(module + ".input_offset", one, {offset_part(module, q)}, before));
      ASSIGN_OR_RETURN(const OpSchema* quantize, op("quantize_static"));
      ASSIGN_OR_RETURN(node, g_.add(*quantize, {x, scale, offset}, {}, kName, before));
    }
    made_.push_back({x, q.scheme, q.input_scale, q.input_offset, node});
    return node;
  }

  static ParamPart offset_part(const std::string& module, const LinearQuant& q) {
    if (q.storage == LinearStorage::ModelSlim) return {module + ".input_offset", 1, Recipe::Numbers};
    if (q.input_offset == 0) return {"", 1, Recipe::Zeros};
    return {module + ".input_zero_point", 1, Recipe::Numbers};
  }

  // What the accumulated sum is multiplied with.
  static ParamPart scale_part(const std::string& module, const std::string& weight, const LinearQuant& q, int64_t rows,
                              int64_t columns) {
    const bool is_static = q.scheme == LinearScheme::W8A8Static;
    if (q.storage == LinearStorage::Floats) return {weight, rows, Recipe::RowScales, columns};
    if (!is_static) return {module + ".weight_scale", rows, Recipe::Numbers, columns};
    if (q.storage == LinearStorage::ModelSlim) return {module + ".deq_scale", rows, Recipe::DeqScales, columns};
    return {module + ".weight_scale", rows, Recipe::ScaleProducts, columns, module + ".input_scale"};
  }

  // What is added to the sum beforehand, static only: the offset of the activations and perhaps the layer's bias.
  static ParamPart folded_part(const std::string& module, const std::string& weight, const LinearQuant& q, int64_t rows,
                               int64_t columns) {
    if (q.storage == LinearStorage::ModelSlim) return {module + ".quant_bias", rows};
    if (q.input_offset == 0) return {"", rows, Recipe::Zeros};
    return {weight, rows, Recipe::ZeroPointSums, columns, module + ".input_zero_point"};
  }

  // part(rows) for each part of the weight, of the same rows of its tensor.
  template <typename F>
  static std::vector<ParamPart> rows_of_tensor(const std::vector<ParamPart>& weight, const F& part) {
    std::vector<ParamPart> out;
    for (const ParamPart& w : weight) {
      out.push_back(part(w.rows));
      if (w.of > 0 && !out.back().tensor.empty()) out.back().first = w.first, out.back().of = w.of;
    }
    return out;
  }

  Status quantise(Node* n, const std::string& name, const LinearQuant& q) {
    const std::string weight_name = nn::tensor_of_param(name);
    const std::vector<ParamPart> tensor = parts_of_name(name, n->in[1]->type.shape);
    const std::string module(checkpoint::module_of(weight_name));
    if (module.empty()) return error(Code::Unsupported, "a weight to quantise must be named <module>.weight");
    const bool is_static = q.scheme == LinearScheme::W8A8Static;
    const int64_t rows = n->in[1]->type.shape[0].factor, columns = n->in[1]->type.shape[1].factor;
    const TensorType per_row_f32{DType::F32, {Dim(rows)}}, per_row_i32{DType::I32, {Dim(rows)}};
    ASSIGN_OR_RETURN(Node * input, quantised_input(n->in[0], module, q, n));
    std::vector<Value*> in{input->result()};
    if (!is_static) in.push_back(input->result(1));

    const Recipe rows_from = q.storage == LinearStorage::Floats ? Recipe::QuantisedRows : Recipe::Converted;
    const auto of_weight = [&](int64_t count) { return ParamPart{weight_name, count, rows_from, columns}; };
    ASSIGN_OR_RETURN(Value * weight, retyped(n, 1, DType::I8, "_i8", rows_of_tensor(tensor, of_weight)));
    in.push_back(weight);
    // Next to the weight, under its name: two layers may read one tensor.
    const std::string stem = weight->def->attrs.text("name");
    const auto of_scale = [&](int64_t count) { return scale_part(module, weight_name, q, count, columns); };
    ASSIGN_OR_RETURN(Value * scale, param(stem + "_row_scale", per_row_f32, rows_of_tensor(tensor, of_scale), n));
    in.push_back(scale);
    if (is_static) {
      const auto of_bias = [&](int64_t count) { return folded_part(module, weight_name, q, count, columns); };
      ASSIGN_OR_RETURN(Value * folded, param(stem + "_folded_bias", per_row_i32, rows_of_tensor(tensor, of_bias), n));
      in.push_back(folded);
    }
    const bool bias_is_folded = is_static && q.storage == LinearStorage::ModelSlim;
    if (n->in.size() > 2 && !bias_is_folded) {
      const std::string bias_name = n->in[2]->def->attrs.text("name");
      ASSIGN_OR_RETURN(Value * bias, retyped(n, 2, DType::F32, "_f32", parts_of_name(bias_name, n->in[2]->type.shape)));
      in.push_back(bias);
    }

    ASSIGN_OR_RETURN(const OpSchema* linear, op(is_static ? "linear_w8a8_static" : "linear_w8a8_dynamic"));
    ASSIGN_OR_RETURN(Node * made, g_.add(*linear, std::move(in),
                                         {{"out", std::string(dtype_name(n->result()->type.dtype))},
                                          {"shard", n->attrs.text("shard")}},
                                         kName, n));
    c_.applied(*made, fmt::format("{}: {}{}", weight_name, is_static ? "static" : "dynamic",
                                  q.storage == LinearStorage::Floats ? ", quantised while loading" : ""));
    g_.replace_all_uses(n->result(), made->result());
    g_.erase(n);
    return Status::ok();
  }

  // The matrices of a stack as the checkpoint has them.
  struct Experts {
    std::vector<ParamPart> tensors;
    std::vector<LinearQuant> quants;

    std::string module(size_t i) const { return std::string(checkpoint::module_of(tensors[i].tensor)); }
    bool one_input_scale() const {
      return std::all_of(quants.begin(), quants.end(), [&](const LinearQuant& q) {
        return q.input_scale == quants[0].input_scale && q.input_offset == quants[0].input_offset;
      });
    }
    std::vector<std::pair<float, float>> input_numbers() const {
      std::vector<std::pair<float, float>> out;
      for (const LinearQuant& q : quants) out.emplace_back(q.input_scale, q.input_offset);
      return out;
    }
  };

  // Those of the matrices, which must be stored alike.
  Result<Experts> experts_of(const std::string& name, const Shape& shape) const {
    Experts e{parts_of_name(name, shape), {}};
    for (const ParamPart& t : e.tensors) {
      const LinearQuant& q = plan_.of(t.tensor);
      e.quants.push_back(q);
      if (q.scheme != e.quants[0].scheme || q.storage != e.quants[0].storage)
        return invalid("{} and {} are stored in different ways; experts of one layer must be alike",
                       e.tensors[0].tensor, t.tensor);
    }
    return e;
  }

  // The input of a product in groups: its values and, where a token has a scale, those. Numbers that are the same for
  // all experts quantise rows before they are gathered, which is less work and gives the same.
  Result<std::vector<Value*>> quantised_rows(Node* n, const std::string& name, const Experts& e) {
    if (!e.one_input_scale()) {
      ASSIGN_OR_RETURN(Value * values, quantised_groups(n, name, e));
      return std::vector<Value*>{values};
    }
    Node* gather = n->in[0]->def->op->has(op_trait::kGathers) ? n->in[0]->def : nullptr;
    ASSIGN_OR_RETURN(Node * input,
                     quantised_input(gather ? gather->in[0] : n->in[0], e.module(0), e.quants[0], gather ? gather : n));
    std::vector<Value*> parts;
    for (const auto& v : input->out) parts.push_back(v.get());
    if (!gather) return parts;
    for (const Gathered& g : gathered_)
      if (g.rows == gather && g.quantised == input) return g.parts;
    for (Value*& v : parts) {
      ASSIGN_OR_RETURN(Node * part, g_.add(*gather->op, {v, gather->in[1]}, {}, kName, gather));
      v = part->result();
    }
    gathered_.push_back({gather, input, parts});
    return parts;
  }

  // Rows of every group by the numbers of its own expert.
  Result<Value*> quantised_groups(Node* n, const std::string& name, const Experts& e) {
    for (const Grouped& g : grouped_)
      if (g.x == n->in[0] && g.numbers == e.input_numbers()) return g.values;
    DerivedParam scales{name + "_input_scale_reciprocals", {}}, offsets{name + "_input_offsets", {}};
    for (size_t i = 0; i < e.tensors.size(); ++i) {
      scales.parts.push_back({e.module(i) + ".input_scale", 1, Recipe::Reciprocals});
      offsets.parts.push_back(offset_part(e.module(i), e.quants[i]));
    }
    const TensorType each{DType::F32, {Dim(static_cast<int64_t>(e.tensors.size()))}};
    ASSIGN_OR_RETURN(Value * scale, derived_param(std::move(scales), each, n));
    ASSIGN_OR_RETURN(Value * offset, derived_param(std::move(offsets), each, n));
    ASSIGN_OR_RETURN(const OpSchema* quantize, op("quantize_groups"));
    ASSIGN_OR_RETURN(Node * made, g_.add(*quantize, {n->in[0], n->in[1], scale, offset}, {}, kName, n));
    grouped_.push_back({n->in[0], e.input_numbers(), made->result()});
    return made->result();
  }

  Result<Value*> derived_param(DerivedParam p, TensorType type, Node* before) {
    ASSIGN_OR_RETURN(const OpSchema* source, op("param"));
    ASSIGN_OR_RETURN(Node * made, g_.add_source(*source, p.name, type, kName, before));
    c_.derived().push_back(std::move(p));
    return made->result();
  }

  Status quantise_stack(Node* n, const std::string& name) {
    Value* stack = n->in[2];
    const Shape shape = stack->type.shape;
    const int64_t rows = shape[1].factor, columns = shape[2].factor;
    ASSIGN_OR_RETURN(const Experts e, experts_of(name, shape));
    const LinearQuant& q = e.quants[0];
    if (!is_int8(q)) return Status::ok();
    const bool is_static = q.scheme == LinearScheme::W8A8Static;
    c_.count_tried();
    if (!c_.may_apply(*n)) return Status::ok();
    ASSIGN_OR_RETURN(std::vector<Value*> in, quantised_rows(n, name, e));
    in.push_back(n->in[1]);
    in.push_back(stack);
    DerivedParam weights{name, {}}, scales{name + "_row_scale", {}}, folded{name + "_folded_bias", {}};
    const Recipe rows_from = q.storage == LinearStorage::Floats ? Recipe::QuantisedRows : Recipe::Converted;
    for (size_t i = 0; i < e.tensors.size(); ++i) {
      const std::string& tensor = e.tensors[i].tensor;
      weights.parts.push_back({tensor, rows, rows_from, columns});
      scales.parts.push_back(scale_part(e.module(i), tensor, e.quants[i], rows, columns));
      if (is_static) folded.parts.push_back(folded_part(e.module(i), tensor, e.quants[i], rows, columns));
    }
    stack->type = {DType::I8, shape};
    c_.derived().push_back(std::move(weights));
    const Dim all(rows * static_cast<int64_t>(e.tensors.size()));
    ASSIGN_OR_RETURN(Value * scale, derived_param(std::move(scales), {DType::F32, {all}}, n));
    in.push_back(scale);
    if (is_static) {
      ASSIGN_OR_RETURN(Value * bias, derived_param(std::move(folded), {DType::I32, {all}}, n));
      in.push_back(bias);
    }
    ASSIGN_OR_RETURN(const OpSchema* grouped,
                     op(is_static ? "grouped_linear_w8a8_static" : "grouped_linear_w8a8_dynamic"));
    ASSIGN_OR_RETURN(Node * made, g_.add(*grouped, std::move(in),
                                         {{"out", std::string(dtype_name(n->result()->type.dtype))},
                                          {"shard", n->attrs.text("shard")}},
                                         kName, n));
    c_.applied(*made, fmt::format("{}: {}{}", name, is_static ? "static" : "dynamic",
                                  q.storage == LinearStorage::Floats ? ", quantised while loading" : ""));
    g_.replace_all_uses(n->result(), made->result());
    g_.erase(n);
    return Status::ok();
  }

  // Rows of a matrix that a model folds into other products (kv_b_proj of latent attention) are multiplied as floats:
  // the inputs that the checkpoint's numbers are for do not occur.
  Status dequantise(Node* n) {
    const std::string name = n->attrs.text("name");
    const nn::ParamName parsed = nn::parse_param_name(name);
    const LinearQuant& q = plan_.of(parsed.tensor);
    const bool of_linear = std::any_of(n->result()->uses.begin(), n->result()->uses.end(),
                                       [&](const Use& u) { return u.user->op == linear_ && u.operand == 1; });
    if (parsed.of == 0 || of_linear || !is_int8(q)) return Status::ok();
    c_.count_tried();
    constexpr std::string_view kWhy = "it is folded into other products, which have no int8 form";
    if (q.storage == LinearStorage::Floats) {
      c_.refuse(*n, fmt::format("{} stays float: {}", name, kWhy));
      return Status::ok();
    }
    if (!c_.may_apply(*n)) return Status::ok();
    DerivedParam floats{name, parts_of_name(name, n->result()->type.shape)};
    for (ParamPart& part : floats.parts) {
      part.recipe = parsed.transposed ? Recipe::DequantisedTransposed : Recipe::Dequantised;
      part.other = std::string(checkpoint::module_of(parsed.tensor)) + ".weight_scale";
    }
    c_.derived().push_back(std::move(floats));
    c_.applied(*n, fmt::format("{} is made float while loading: {}", name, kWhy));
    return Status::ok();
  }

  struct Gathered {
    const Node *rows, *quantised;
    std::vector<Value*> parts;
  };
  struct Grouped {
    const Value* x;
    std::vector<std::pair<float, float>> numbers;  // scale and offset of every group
    Value* values;
  };
  struct Made {
    const Value* x;
    LinearScheme scheme;
    float scale, offset;
    Node* node;
  };

  Graph& g_;
  PassContext& c_;
  const checkpoint::QuantPlan& plan_;
  const OpSchema* linear_ = c_.ops().find("linear");
  const OpSchema* grouped_linear_ = c_.ops().find("grouped_linear");
  const OpSchema* sigmoid_ = c_.ops().find("sigmoid");
  std::vector<Made> made_;
  std::vector<Gathered> gathered_;
  std::vector<Grouped> grouped_;
};

}  // namespace

Pass quantise_linears(std::shared_ptr<const checkpoint::QuantPlan> plan) {
  return {kName, true, [plan = std::move(plan)](Graph& g, PassContext& c) {
            return plan ? Quantiser(g, c, *plan).run() : Status::ok();
          }};
}

}  // namespace reprise
