// What the tests of passes share: a platform of any kind that knows the fused ops, tiny model configurations, and a way
// to run a graph on the CPU with given bytes. Plain values; one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "backends/all.h"
#include "backends/null/null_device.h"
#include "base/half.h"
#include "compile/compiled_model.h"
#include "graph/text.h"
#include "models/model.h"
#include "ops/core.h"
#include "passes/house_passes.h"
#include "passes/pipeline.h"

namespace reprise::test {

// Every op has a kernel there.
inline Platform null_platform() {
  Platform p;
  p.ops = std::make_unique<OpRegistry>();
  register_core_ops(*p.ops);
  nn::register_fused_ops(*p.ops);
  p.kernels = std::make_unique<KernelRegistry>();
  null::register_null(*p.kernels, *p.ops);
  p.device = null::make_null_device();
  return p;
}

inline Platform cpu_platform() {
  DeviceOptions options;
  options.threads = 2;
  options.pin_threads = false;
  auto p = make_platform(options);
  EXPECT_TRUE(p.is_ok()) << p.status().message();
  nn::register_fused_ops(*p->ops);
  return std::move(*p);
}

struct TinyModel {
  std::string architecture;
  int64_t layers = 3, head_dim = 64;
  double eps = 1e-5;
  bool tied = true;
  int64_t vocabulary = 263;
  bool sampling = false;
  int64_t token_shares = 1;
};

inline Graph trace_tiny(const TinyModel& m, const OpRegistry& ops, DType dtype = DType::BF16,
                        std::optional<DType> kv_dtype = {}) {
  const Json j = {{"architectures", {m.architecture}},
                  {"hidden_size", 96},
                  {"intermediate_size", 160},
                  {"num_hidden_layers", m.layers},
                  {"num_attention_heads", 4},
                  {"num_key_value_heads", 2},
                  {"head_dim", m.head_dim},
                  {"vocab_size", m.vocabulary},
                  {"max_position_embeddings", 512},
                  {"rms_norm_eps", m.eps},
                  {"rope_theta", 10000.0},
                  {"num_experts", 6},
                  {"num_experts_per_tok", 2},
                  {"moe_intermediate_size", 40},
                  {"shared_expert_intermediate_size", 72},
                  {"tie_word_embeddings", m.tied},
                  {"hidden_act", "silu"}};
  auto fields = checkpoint::parse_model_config(j, "test", {}, models::families(true));
  EXPECT_TRUE(fields.is_ok()) << fields.status().message();
  auto spec = models::find_model(m.architecture);
  EXPECT_TRUE(spec.is_ok());
  models::TraceOptions o;
  o.dtype = dtype;
  o.kv_dtype = kv_dtype.value_or(dtype);
  o.max_tokens = 40;
  o.max_sequences = 4;
  o.max_pages = 2;
  o.pool_pages = 6;
  o.sampling = m.sampling;
  o.token_shares = m.token_shares;
  auto g = models::trace_model(**spec, {*fields, {}}, o, ops);
  EXPECT_TRUE(g.is_ok()) << g.status().message();
  return std::move(*g);
}

inline Graph copy_of(const Graph& g, const OpRegistry& ops) {
  auto again = parse_graph(print(g), ops);
  EXPECT_TRUE(again.is_ok()) << again.status().message();
  return std::move(*again);
}

inline std::map<std::string, int64_t> counts(const std::vector<PassReport>& passes) {
  std::map<std::string, int64_t> out;
  for (auto& p : passes) out[p.name] = p.matched;
  return out;
}

using Bytes = std::vector<uint8_t>;

inline Bytes random_bytes(DType dtype, int64_t elements, std::mt19937& random) {
  Bytes out(static_cast<size_t>(elements) * size_of(dtype));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < elements; ++i) {
    const float f = normal(random);
    const uint16_t half = dtype == DType::BF16 ? float_to_bf16(f) : float_to_half(f);
    if (dtype == DType::F32)
      std::memcpy(out.data() + 4 * i, &f, 4);
    else if (size_of(dtype) == 2)
      std::memcpy(out.data() + 2 * i, &half, 2);
  }
  return out;
}

// Runs `graph` once. `bytes` gives inputs and params by name; the values of the outputs come back by name.
inline Result<std::map<std::string, Bytes>> run_graph(Graph graph, Platform& platform, const LiveSizes& live,
                                                      const std::map<std::string, Bytes>& bytes) {
  ASSIGN_OR_RETURN(KernelSelection selection, select_kernels(graph, platform));
  ASSIGN_OR_RETURN(ParamStore params, ParamStore::create(selection.params, platform.device->pool()));
  for (size_t i = 0; i < params.params().size(); ++i) {
    const ParamPlan& p = params.params()[i];
    RETURN_IF_ERROR(params.pack_rows(i, bytes.at(p.name).data(), 0, rows_of(p.type.shape)));
  }
  Staging staging;
  staging.declare(graph, {});
  RETURN_IF_ERROR(staging.allocate(*platform.device));
  for (const Node* n = graph.first(); n; n = n->next) {
    if (!n->is_input()) continue;
    const Bytes& b = bytes.at(n->attrs.text("name"));
    std::memcpy(staging.address(n->attrs.text("name")), b.data(), b.size());
  }
  MemoryPlan plan = plan_memory(graph, selection.workspace);
  ASSIGN_OR_RETURN(Buffer arena, platform.device->pool().allocate(plan.arena_bytes, "arena"));
  CompileRequest request;
  request.platform = &platform;
  request.params = &params;
  request.staging = &staging;
  request.arena = arena.data();
  ASSIGN_OR_RETURN(auto model, CompiledModel::compile(std::move(graph), selection, std::move(plan), request));
  ASSIGN_OR_RETURN(auto stream, platform.device->make_stream());
  RETURN_IF_ERROR(model->run(live, *stream));
  std::map<std::string, Bytes> out;
  for (auto& o : model->graph().outputs()) {
    ASSIGN_OR_RETURN(TensorView v, model->output(o.name));
    auto* data = static_cast<const uint8_t*>(v.data);
    out[o.name] = Bytes(data, data + static_cast<size_t>(v.elements()) * size_of(v.dtype));
  }
  return out;
}

}  // namespace reprise::test
