#include "models/model.h"

#include "ops/core.h"

namespace reprise::models {

Result<Graph> trace_model(const ModelSpec& spec, const ModelConfig& config, const TraceOptions& o,
                          const OpRegistry& ops) {
  const auto& f = config.fields;
  if (f.head_dim % 2 != 0)
    return invalid("{}: head_dim {} must be even: rotary embedding turns pairs", f.source, f.head_dim);
  Tracer tracer(std::string(spec.architecture), ops);
  const Dim tokens = tracer.symbol("T", o.max_tokens);
  const Dim sequences = tracer.symbol("R", o.max_sequences);
  const Dim borders = tracer.symbol("Q", o.max_sequences + 1);
  const Dim logit_rows = tracer.symbol("L", o.max_sequences);
  const Dim pages = tracer.symbol("P", o.pool_pages);
  nn::StepInputs in;
  auto ids = [&](std::string_view name, Shape shape) { return tracer.input(name, TensorType{o.index_dtype, shape}); };
  in.tokens = ids("tokens", {tokens});
  in.positions = ids("positions", {tokens});
  in.slots = ids("slots", {tokens});
  in.page_table = ids("page_table", {sequences, Dim(o.max_pages)});
  in.context_lens = ids("context_lens", {sequences});
  in.query_starts = ids("query_starts", {borders});
  in.last_rows = ids("last_rows", {logit_rows});
  for (int64_t l = 0; l < f.num_hidden_layers; ++l)
    in.kv.push_back(
        tracer.input(fmt::format("kv.{}", l), TensorType{o.kv_dtype,
                                                         {pages, Dim(2), Dim(f.num_key_value_heads), Dim(kPageTokens),
                                                          Dim(kv_row(o.kv_dtype, f.head_dim))}}));
  const ModelOutputs out = spec.forward(config, in, nn::ParamScope(tracer, o.dtype));
  tracer.output("hidden", out.hidden);
  tracer.output("logits", out.logits);
  return tracer.finish();
}

}  // namespace reprise::models
