#include "nn/fused.h"

#include "nn/fused/list.h"

namespace reprise::nn {

void FusedOps::add(FusedOp op) {
  CHECK(!find(op.name()), "fused op {} is declared twice", op.name());
  CHECK(op.meaning && !op.examples.empty(), "fused op {} needs a meaning and an example", op.name());
  ops_.push_back(std::move(op));
}

const FusedOp* FusedOps::find(std::string_view name) const {
  for (const FusedOp& op : ops_)
    if (op.name() == name) return &op;
  return nullptr;
}

FusedOps fused_ops() {
  FusedOps ops;
  add_attention_ops(ops);
  add_quantised_ops(ops);
  add_float_ops(ops);
  add_expert_ops(ops);
  return ops;
}

namespace {

std::vector<Tensor> trace_inputs(Tracer& tracer, size_t operands, std::span<const TensorType> in) {
  std::vector<Tensor> tensors(operands);
  for (size_t i = 0; i < in.size(); ++i) tensors[i] = tracer.input(std::to_string(i), in[i]);
  return tensors;
}

}  // namespace

void register_fused_op(OpRegistry& ops, const FusedOp& op) {
  if (ops.find(op.name())) return;
  auto infer = [meaning = op.meaning, &ops](const OpCall& c) -> Result<std::vector<TensorType>> {
    Tracer tracer(c.op->name, ops);
    const auto in = trace_inputs(tracer, c.op->operands.size(), c.in);
    const std::vector<Tensor> out = meaning(in, *c.attrs);
    RETURN_IF_ERROR(tracer.status().at(c.op->name));
    std::vector<TensorType> types;
    for (const Tensor& t : out) types.push_back(t.value()->type);
    return types;
  };
  ops.add(op.decl, std::move(infer), op.doc);
}

void register_fused_ops(OpRegistry& ops) {
  const FusedOps fused = fused_ops();
  for (const FusedOp& op : fused.all()) register_fused_op(ops, op);
}

Result<Graph> trace_meaning(const Meaning& meaning, size_t operands, std::span<const Symbol> symbols,
                            std::span<const TensorType> in, const Attrs& attrs, const OpRegistry& ops) {
  Tracer tracer("meaning", ops);
  for (const Symbol& s : symbols) (void)tracer.symbol(s.name, s.bound);
  const auto tensors = trace_inputs(tracer, operands, in);
  const std::vector<Tensor> out = meaning(tensors, attrs);
  RETURN_IF_ERROR(tracer.status());
  for (size_t i = 0; i < out.size(); ++i) tracer.output(std::to_string(i), out[i]);
  return tracer.finish();
}

}  // namespace reprise::nn
