#include "passes/keep_blocks.h"

#include <algorithm>

#include "ops/block_activations.h"

namespace reprise {
namespace {

using checkpoint::LinearQuant;
using checkpoint::LinearScheme;

// A parameter in blocks: a matrix, or a stack of which every matrix has its tensors.
struct BlockParam {
  Node* node;
  BlockFormat format;
  std::vector<ParamPart> parts;
};

// The call that takes the place of a use.
struct Packed {
  const OpSchema* op = nullptr;
  std::vector<TensorType> in;
  Attrs attrs;
};

Result<Packed> packed_call(const PassContext& c, const Use& use, const TensorType& blocks, std::string_view format,
                           bool int8_activations) {
  const Node& n = *use.user;
  const bool weight = use.declared().role == OperandRole::Weight;
  const bool linear = weight && n.op == c.ops().find("linear"),
             grouped = weight && n.op == c.ops().find("grouped_linear");
  if (!linear && !grouped && n.op != c.ops().find("embedding"))
    return error(Code::Unsupported, "%{} ({}) reads it as floats", n.result()->id, n.op->name);
  const char* op = linear ? "linear_blocks" : grouped ? "grouped_linear_blocks" : "embedding_blocks";
  Packed p{c.ops().find(op), n.in_types(), {}};
  if (!p.op) return error(Code::Unsupported, "there are no ops on packed weights");
  p.in[use.operand] = blocks;
  p.attrs.set("format", std::string(format));
  if (!linear && !grouped) p.attrs.set("width", n.result()->type.shape[1].factor);
  if (!grouped) p.attrs.set("out", linear ? n.attrs.text("out") : std::string(dtype_name(n.result()->type.dtype)));
  if (linear || grouped) p.attrs.set("activations", activations_attr(int8_activations));
  p.attrs.set("shard", n.attrs.text("shard"));
  RETURN_IF_ERROR(check_attrs(*p.op, p.attrs));
  RETURN_IF_ERROR(c.has_kernel(*p.op, p.in, p.attrs));
  return p;
}

Status keep(Graph& g, PassContext& c, BlockParam p, bool int8_activations, std::string_view pass) {
  Node* param = p.node;
  const std::string name = param->attrs.text("name");
  const BlockFormatInfo& info = block_format_info(p.format);
  Value* v = param->result();
  const int64_t columns = v->type.shape.back().factor;
  TensorType blocks{DType::U8, v->type.shape};
  blocks.shape[blocks.shape.rank() - 1] = Dim(columns / info.elements * info.bytes);
  c.count_tried();
  const std::vector<Use> uses = v->uses;
  std::vector<Packed> calls;
  for (const Use& u : uses) {
    auto call = packed_call(c, u, blocks, info.name, int8_activations);
    if (!call.is_ok()) {
      c.refuse(*param, fmt::format("{} is unpacked: {}", name, call.status().message()));
      return Status::ok();
    }
    calls.push_back(std::move(*call));
  }
  if (!c.may_apply(*param)) return Status::ok();
  v->type = blocks;  // its readers follow at once
  for (size_t i = 0; i < uses.size(); ++i) {
    Node* n = uses[i].user;
    ASSIGN_OR_RETURN(Node * made, g.add(*calls[i].op, n->in, calls[i].attrs, std::string(pass), n));
    g.replace_all_uses(n->result(), made->result());
    g.erase(n);
  }
  for (ParamPart& part : p.parts) part.recipe = Recipe::StoredBlocks, part.columns = columns;
  c.derived().push_back({name, std::move(p.parts)});
  c.applied(*param, fmt::format("{} stays {}", name, info.name));
  return Status::ok();
}

}  // namespace

Status keep_blocks(Graph& g, PassContext& c, const checkpoint::QuantPlan& plan, std::string_view pass) {
  std::vector<Node*> params;
  for (Node* n = g.first(); n; n = n->next)
    if (n->is_param() && n->result()->outputs.empty()) params.push_back(n);
  for (Node* n : params) {
    const std::string name = n->attrs.text("name");
    std::vector<ParamPart> parts = parts_of_name(name, n->result()->type.shape);
    const LinearQuant& q = plan.of(parts[0].tensor);
    const auto alike = [&](const ParamPart& part) {
      const LinearQuant& other = plan.of(part.tensor);
      return part.of == 0 && other.scheme == q.scheme && other.block == q.block;
    };
    if (q.scheme == LinearScheme::Packed && std::all_of(parts.begin(), parts.end(), alike))
      RETURN_IF_ERROR(keep(g, c, {n, q.block, std::move(parts)}, plan.int8_activations, pass).at(name));
    else if (const std::string& type = q.unpacked; !type.empty())
      c.count_tried(), c.refuse(*n, fmt::format("{} is unpacked: there are no kernels on {}{}", name, type,
                                                type.find(' ') == std::string::npos ? " blocks" : ""));
  }
  return Status::ok();
}

}  // namespace reprise
