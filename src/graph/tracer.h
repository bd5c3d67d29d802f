// Tracer and Tensor: how plain C++ model functions become a Graph.
//
// A Tensor is a handle to a value being traced; calling an op on it adds a node. It has no data and converts to no
// number or bool, and its sizes do not compare, so no branch on data or on a symbolic size compiles. The first error
// sticks: later calls do nothing, and finish() reports it. A Tracer and its Tensors belong to one thread.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace reprise {

class Tracer;

class Tensor {
 public:
  Tensor() = default;  // absent: an optional operand left out
  Tensor(Tracer* tracer, Value* value) : tracer_(tracer), value_(value) {}

  explicit operator bool() const = delete;  // a branch on data cannot be traced

  Tracer* tracer() const { return tracer_; }
  Value* value() const { return value_; }
  bool absent() const { return tracer_ == nullptr; }
  int rank() const;
  Dim dim(int i) const;  // negative i counts from the end; 1 after an error
  DType dtype() const;

 private:
  Tracer* tracer_ = nullptr;
  Value* value_ = nullptr;
};

class Tracer {
 public:
  Tracer(std::string name, const OpRegistry& ops) : graph_(std::move(name)), ops_(ops) {}
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // A size that is known at run time only: `factor` times the symbol, created at first use.
  Dim symbol(std::string_view name, int64_t bound);
  Tensor input(std::string_view name, TensorType type);
  // The same name gives the same tensor; a second type for it is an error.
  Tensor param(std::string_view name, TensorType type);
  // Absent tensors at the end of `in` are dropped.
  std::vector<Tensor> call(std::string_view op, std::vector<Tensor> in, Attrs attrs = {});
  void output(std::string_view name, Tensor value);

  void fail(Status status);
  const Status& status() const { return status_; }
  // Who is adding nodes now; kept in each node's made_by.
  void set_origin(std::string origin) { origin_ = std::move(origin); }

  // The verified graph, or the first error.
  Result<Graph> finish();

 private:
  Graph graph_;
  const OpRegistry& ops_;
  Status status_;
  std::string origin_ = "trace";
  std::unordered_map<std::string, Value*> params_;
};

}  // namespace reprise
