#include "nn/functional.h"
#include "passes/aliases.h"
#include "passes/house_passes.h"

namespace reprise {
namespace {

constexpr int64_t kSize = 22, kHeads = 6;

nn::FusedExample example(TensorType type, Attrs attrs = {}) { return {{{"T", 24}}, {type}, std::move(attrs)}; }

TensorType flat() { return {DType::BF16, {Dim(1, 1), Dim(kHeads * kSize)}}; }

const Node* first_of(const Node* n) {
  while (n->prev) n = n->prev;
  return n;
}

// Without the copy two names share bytes, so neither may be written in place.
Status nobody_writes(const Match& m, const PassContext&) {
  for (const Node* n = first_of(m.nodes[0]); n; n = n->next) {
    for (const Value* root : written_roots(*n))
      if (root == storage_root(m.in[0]) || root == m.out[0])
        return invalid("%{} ({}) writes %{} in place", n->result()->id, n->op->name, root->id);
  }
  return Status::ok();
}

Rewrite unary(std::string name, nn::Meaning search, nn::FusedExample e) {
  Rewrite r;
  r.name = std::move(name);
  r.operands = 1;
  r.search = std::move(search);
  r.replace = [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> { return {in[0]}; };
  r.examples = {std::move(e)};
  r.report_partial = false;  // a view on its own is nothing to tell about
  return r;
}

}  // namespace

std::vector<Rewrite> canonical_rewrites() {
  std::vector<Rewrite> out;
  const Attrs size{{"size", kSize}};
  out.push_back(unary(
      "flatten_of_heads",
      [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
        return {nn::flatten(nn::heads(in[0], at.integer("size")))};
      },
      example(flat(), size)));
  out.push_back(unary(
      "heads_of_flatten",
      [](std::span<const Tensor> in, const Attrs& at) -> std::vector<Tensor> {
        return {nn::heads(nn::flatten(in[0]), at.integer("size"))};
      },
      example({DType::BF16, {Dim(1, 1), Dim(kHeads), Dim(kSize)}}, size)));
  out.push_back(unary(
      "erase_copy", [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> { return {nn::copy(in[0])}; },
      example(flat())));
  out.back().guard = nobody_writes;
  out.push_back(unary(
      "double_reciprocal",
      [](std::span<const Tensor> in, const Attrs&) -> std::vector<Tensor> {
        return {nn::reciprocal(nn::reciprocal(in[0]))};
      },
      example(flat())));
  out.back().roundings = 2;
  return out;
}

Pass canonicalise() {
  return {"canonicalise", false, [](Graph& g, PassContext& c) -> Status {
            for (const Rewrite& r : canonical_rewrites()) RETURN_IF_ERROR(run_rewrite(r, g, c));
            g.remove_dead();
            return Status::ok();
          }};
}

Pass dead_code() {
  return {"dead_code", true, [](Graph& g, PassContext& c) -> Status {
            c.report().tried = static_cast<int64_t>(g.size());
            c.report().matched = g.remove_dead();
            return Status::ok();
          }};
}

}  // namespace reprise
