#include "graph/tracer.h"

#include "ops/kernel.h"

namespace reprise {

int Tensor::rank() const { return value_ ? value_->type.shape.rank() : 0; }

Dim Tensor::dim(int i) const {
  if (!value_) return Dim(1);
  const Shape& s = value_->type.shape;
  const int at = i < 0 ? s.rank() + i : i;
  if (at < 0 || at >= s.rank()) {
    tracer_->fail(invalid("dimension {} of a tensor of rank {}", i, s.rank()));
    return Dim(1);
  }
  return s[at];
}

DType Tensor::dtype() const { return value_ ? value_->type.dtype : DType::F32; }

void Tracer::fail(Status status) {
  if (status_.is_ok()) status_ = std::move(status);
}

Dim Tracer::symbol(std::string_view name, int64_t bound) {
  const auto& known = graph_.symbols();
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i].name == name) return Dim(1, static_cast<SymbolId>(i + 1));
  auto id = graph_.add_symbol(std::string(name), bound);
  if (!id.is_ok()) {
    fail(id.status());
    return Dim(1);
  }
  return Dim(1, *id);
}

Tensor Tracer::input(std::string_view name, TensorType type) {
  if (!status_.is_ok()) return {this, nullptr};
  auto node = graph_.add_source(*ops_.find("input"), std::string(name), type, origin_);
  if (!node.is_ok()) {
    fail(node.status());
    return {this, nullptr};
  }
  return {this, (*node)->result()};
}

Tensor Tracer::param(std::string_view name, TensorType type) {
  if (!status_.is_ok()) return {this, nullptr};
  if (auto it = params_.find(std::string(name)); it != params_.end()) {
    if (!same_type(it->second->type, type))
      fail(invalid("parameter {} is used as {} and as {}", name, describe(it->second->type), describe(type)));
    return {this, it->second};
  }
  auto node = graph_.add_source(*ops_.find("param"), std::string(name), type, origin_);
  if (!node.is_ok()) {
    fail(node.status());
    return {this, nullptr};
  }
  params_[std::string(name)] = (*node)->result();
  return {this, (*node)->result()};
}

std::vector<Tensor> Tracer::call(std::string_view op, std::vector<Tensor> in, Attrs attrs) {
  const OpSchema* schema = ops_.find(op);
  if (!schema) fail(invalid("op \"{}\" is not known", op));
  std::vector<Tensor> out(schema ? static_cast<size_t>(schema->results) : 1, Tensor(this, nullptr));
  while (!in.empty() && in.back().absent()) in.pop_back();
  std::vector<Value*> values;
  for (const Tensor& t : in) {
    if (t.tracer() != this) fail(invalid("{}: an operand belongs to another trace", op));
    values.push_back(t.value());
  }
  if (!status_.is_ok()) return out;
  auto node = graph_.add(*schema, std::move(values), std::move(attrs), origin_);
  if (!node.is_ok()) {
    fail(node.status());
    return out;
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = Tensor(this, (*node)->result(i));
  return out;
}

void Tracer::output(std::string_view name, Tensor value) {
  if (!status_.is_ok()) return;
  if (Status s = graph_.add_output(std::string(name), value.value()); !s.is_ok()) fail(s);
}

Result<Graph> Tracer::finish() {
  RETURN_IF_ERROR(status_);
  graph_.remove_dead();
  RETURN_IF_ERROR(verify(graph_));
  return std::move(graph_);
}

}  // namespace reprise
