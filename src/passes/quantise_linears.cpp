#include <algorithm>

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
      if (n->op->name == "linear" && n->in[1]->def->op->name == "param") {
        const std::string weight = n->in[1]->def->attrs.text("name");
        const LinearQuant& q = plan_.of(weight);
        if (q.scheme != LinearScheme::Float && q.scheme != LinearScheme::Packed) {
          c_.count_tried();
          if (c_.may_apply(*n)) RETURN_IF_ERROR(quantise(n, weight, q).at(weight));
        }
      }
      n = next;
    }
    g_.remove_dead();  // biases that a folded one replaces
    return Status::ok();
  }

 private:
  Result<const OpSchema*> op(std::string_view name) const {
    if (const OpSchema* o = c_.ops().find(name)) return o;
    return error(Code::Unsupported, "there is no op {}", name);
  }

  // Says how the loader makes the parameter, unless it is the tensor of that name as it stands.
  void derive(const std::string& name, ParamPart part) {
    if (part.tensor != name || part.recipe != Recipe::Converted || part.columns)
      c_.derived().push_back({name, {std::move(part)}});
  }

  Result<Value*> param(const std::string& name, TensorType type, ParamPart part, Node* before) {
    if (Node* known = g_.find_source("param", name)) {
      if (known->result()->type.dtype == type.dtype) return known->result();
      return error(Code::Internal, "parameter {} is wanted with two types", name);
    }
    ASSIGN_OR_RETURN(const OpSchema* source, op("param"));
    ASSIGN_OR_RETURN(Node * made, g_.add_source(*source, name, type, kName, before));
    derive(name, std::move(part));
    return made->result();
  }

  // The float parameter with another element type: itself where linears are all that read it in this place, else a copy
  // (an embedding table that is the head as well).
  Result<Value*> retyped(Node* n, uint32_t operand, DType dtype, const char* ending, ParamPart part) {
    Value* v = n->in[operand];
    if (v->type.dtype == dtype) return v;
    const std::string name = v->def->attrs.text("name");
    const bool own = std::all_of(v->uses.begin(), v->uses.end(),
                                 [&](const Use& u) { return u.user->op == n->op && u.operand == operand; });
    const TensorType type{dtype, v->type.shape};
    if (!own) return param(name + ending, type, std::move(part), n);
    v->type = type;  // its other readers are rewritten in their turn
    derive(name, std::move(part));
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
                                            {module + ".input_scale", 1, Recipe::Reciprocals}, before));
      ParamPart point{module + ".input_offset", 1, Recipe::Numbers};
      if (q.storage == LinearStorage::CompressedTensors) point.tensor = module + ".input_zero_point";
      if (q.storage == LinearStorage::CompressedTensors && q.input_offset == 0) point = {"", 1, Recipe::Zeros};
      ASSIGN_OR_RETURN(Value * offset, param(module + ".input_offset", one, std::move(point), before));
      ASSIGN_OR_RETURN(const OpSchema* quantize, op("quantize_static"));
      ASSIGN_OR_RETURN(node, g_.add(*quantize, {x, scale, offset}, {}, kName, before));
    }
    made_.push_back({x, q.scheme, q.input_scale, q.input_offset, node});
    return node;
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

  Status quantise(Node* n, const std::string& weight_name, const LinearQuant& q) {
    const std::string module(checkpoint::module_of(weight_name));
    if (module.empty()) return error(Code::Unsupported, "a weight to quantise must be named <module>.weight");
    const bool is_static = q.scheme == LinearScheme::W8A8Static;
    const int64_t rows = n->in[1]->type.shape[0].factor, columns = n->in[1]->type.shape[1].factor;
    const TensorType per_row_f32{DType::F32, {Dim(rows)}}, per_row_i32{DType::I32, {Dim(rows)}};
    ASSIGN_OR_RETURN(Node * input, quantised_input(n->in[0], module, q, n));
    std::vector<Value*> in{input->result()};
    if (!is_static) in.push_back(input->result(1));

    const Recipe rows_from = q.storage == LinearStorage::Floats ? Recipe::QuantisedRows : Recipe::Converted;
    ASSIGN_OR_RETURN(Value * weight, retyped(n, 1, DType::I8, "_i8", {weight_name, rows, rows_from, columns}));
    in.push_back(weight);
    // Beside the weight, under its name: two layers may read one tensor.
    const std::string stem = weight->def->attrs.text("name");
    ASSIGN_OR_RETURN(Value * scale,
                     param(stem + "_row_scale", per_row_f32, scale_part(module, weight_name, q, rows, columns), n));
    in.push_back(scale);
    if (is_static) {
      ASSIGN_OR_RETURN(Value * folded, param(stem + "_folded_bias", per_row_i32,
                                             folded_part(module, weight_name, q, rows, columns), n));
      in.push_back(folded);
    }
    const bool bias_is_folded = is_static && q.storage == LinearStorage::ModelSlim;
    if (n->in.size() > 2 && !bias_is_folded) {
      const std::string bias_name = n->in[2]->def->attrs.text("name");
      ASSIGN_OR_RETURN(Value * bias, retyped(n, 2, DType::F32, "_f32", {bias_name, rows}));
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

  struct Made {
    const Value* x;
    LinearScheme scheme;
    float scale, offset;
    Node* node;
  };

  Graph& g_;
  PassContext& c_;
  const checkpoint::QuantPlan& plan_;
  std::vector<Made> made_;
};

}  // namespace

Pass quantise_linears(std::shared_ptr<const checkpoint::QuantPlan> plan) {
  return {kName, true, [plan = std::move(plan)](Graph& g, PassContext& c) {
            return plan ? Quantiser(g, c, *plan).run() : Status::ok();
          }};
}

}  // namespace reprise
