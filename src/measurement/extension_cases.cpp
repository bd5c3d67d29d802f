#include "measurement/extension_cases.h"

#include <algorithm>
#include <filesystem>

#include "api/model_settings.h"
#include "graph/text.h"
#include "models/step_spec.h"
#include "passes/extension.h"
#include "see/phase_view.h"

namespace reprise::measurement {
namespace {

// bf16 stands for the dtype that is asked for. Rows of logits are as many as tokens: one set of sizes, not two.
TensorType case_type(TensorType type, DType dtype) {
  if (type.dtype == dtype) type.dtype = kCaseDtype;
  for (int i = 0; i < type.shape.rank(); ++i)
    if (type.shape[i].symbol == models::kLogitRows) type.shape[i] = Dim(type.shape[i].factor, models::kTokens);
  return type;
}

OpCase case_of(const Node& n, const Graph& graph, const ModelOfCases& model, int64_t max_tokens) {
  OpCase c;
  c.op = n.op->name;
  c.model = std::filesystem::path(model.path).lexically_normal().filename().string();
  if (c.model.empty()) c.model = model.path;
  c.symbols = graph.symbols();
  const auto bound = [&](models::StepSymbol s) -> int64_t& { return c.symbols[s - 1].bound; };
  bound(models::kTokens) = bound(models::kSequences) = max_tokens;
  bound(models::kCuSeqlens) = max_tokens + 1;
  for (const Value* v : n.in) c.in.push_back(case_type(v->type, model.dtype));
  c.attrs = n.attrs;
  if (const AttrValue* out = c.attrs.find("out"); out && *out == AttrValue(std::string(dtype_name(model.dtype))))
    c.attrs.set("out", std::string(dtype_name(kCaseDtype)));
  c.fused = true;
  return c;
}

bool same_sizes(const OpCase& a, const OpCase& b) {
  return a.op == b.op && a.attrs == b.attrs &&
         std::equal(a.in.begin(), a.in.end(), b.in.begin(), b.in.end(), same_type);
}

Result<std::unique_ptr<engine::Engine>> open(const ModelOfCases& model) {
  api::ModelSettings s;
  s.model_path = model.path;
  s.load_format = "dummy";
  s.dtype = dtype_name(model.dtype);
  s.device = model.device;
  s.isa = model.isa;
  s.threads = model.threads;
  s.extensions = model.extensions;
  s.context_length = s.max_total_tokens = 256;
  s.max_running_requests = 1;
  s.graph.graph = "off";
  return api::open_engine(s);
}

}  // namespace

std::vector<nn::FusedOp> extension_ops(const Platform& platform) {
  std::vector<nn::FusedOp> out;
  for (const auto& e : platform.extensions) out.insert(out.end(), e->ops().begin(), e->ops().end());
  return out;
}

Result<std::vector<OpCase>> cases_in_model(const ModelOfCases& model, const std::vector<std::string>& ops,
                                           int64_t max_tokens, std::vector<std::string>& why) {
  ASSIGN_OR_RETURN(const auto engine, open(model));
  ASSIGN_OR_RETURN(const see::PhaseView view, see::view_of_phase(*engine, "decode"));
  const Graph& graph = view.model().graph();
  std::vector<OpCase> out;
  const auto wanted = [&](const std::string& op) { return std::find(ops.begin(), ops.end(), op) != ops.end(); };
  for (const Node* n = graph.first(); n; n = n->next) {
    if (!wanted(n->op->name)) continue;
    OpCase c = case_of(*n, graph, model, max_tokens);
    if (std::none_of(out.begin(), out.end(), [&](const OpCase& known) { return same_sizes(known, c); }))
      out.push_back(std::move(c));
  }
  for (const PassReport& p : view.passes->passes)
    if (wanted(p.name) && p.matched == 0)
      why.push_back(fmt::format("{} {} in {}: {}", p.name, dtype_name(model.dtype), model.path,
                                p.refused.empty() ? "nothing that it could be" : p.refused.front().reason));
  return out;
}

}  // namespace reprise::measurement
