#include "models/model.h"

#include "models/draft_head.h"
#include "ops/core.h"

namespace reprise::models {

StepSpec step_of(const ModelSpec& spec, const ModelConfig& config, const TraceOptions& trace) {
  StepSpec step = config.fields.both_sides ? encoder_step(trace) : default_step(config.fields, trace);
  if (spec.declare) spec.declare(config, trace, step);
  if (!encodes(spec, config.fields)) declare_kept_rows(config, trace, step);
  return step;
}

Result<Graph> trace_model(const ModelSpec& spec, const ModelConfig& given, const TraceOptions& o,
                          const OpRegistry& ops) {
  ModelConfig config = given;
  if (encodes(spec, config.fields) && config.generates()) config.pooling.kind = usual_pooling(spec);
  const auto& f = config.fields;
  if (f.head_dim % 2 != 0 && !spec.encoder)
    return invalid("{}: head_dim {} must be even: rotary embedding turns pairs", f.source, f.head_dim);
  if (f.latent && o.kv_dtype != o.dtype)
    return error(Code::Unsupported,
                 "{}: latent attention keeps its cache in the model's dtype, {}; `kv_cache_dtype` asks for {}",
                 f.source, dtype_name(o.dtype), dtype_name(o.kv_dtype));
  const StepSpec step = step_of(spec, config, o);
  RETURN_IF_ERROR(step.check().at(spec.family.architecture));
  Tracer tracer(std::string(spec.family.architecture), ops);
  tracer.symbol("T", o.max_tokens);
  tracer.symbol("R", o.max_sequences);
  tracer.symbol("Q", o.max_sequences + 1);
  const int64_t logit_rows = o.max_logit_rows > 0 ? o.max_logit_rows : o.max_sequences;
  tracer.symbol("L", logit_rows);
  const Dim pages = tracer.symbol("P", o.pool_pages);
  const bool source = step.has_source();
  const bool shares = o.token_shares > 1;  // symbols are numbered in order, so those before its own are there, too
  if (o.sampling || step.has_states() || source || shares) tracer.symbol("E", logit_rows);
  nn::StepInputs in;
  for (const InputSpec& i : step.inputs) (i.member ? in.*i.member : in.added[i.name]) = tracer.input(i.name, i.type);
  in.kept_rows = o.kept_rows;
  const Dim slots = step.has_states() || source || shares ? tracer.symbol("S", o.pool_pages) : Dim();
  const Dim source_pages = source || shares ? tracer.symbol("H", o.pool_pages) : Dim();
  if (shares) tracer.symbol("D", in_equal_shares(o.max_tokens, o.token_shares));
  for (const CacheSpec& c : step.caches) {
    // A pool is not planned by the graph.
    Shape shape{c.kind == CacheSpec::Kind::Paged ? pages : c.kind == CacheSpec::Kind::Source ? source_pages : slots};
    for (Dim d : c.shape.dims()) shape.push_back(d);
    in.caches[c.name] = tracer.input(c.name, {c.dtype, shape});
  }
  const ModelOutputs out = spec.forward(config, in, nn::ParamScope(tracer, o.dtype));
  if (!out.hidden.absent()) tracer.output("hidden", out.hidden);
  if (!config.generates()) {
    tracer.output("pooled", out.pooled);
    return tracer.finish();
  }
  tracer.output("logits", out.logits);
  if (o.sampling) {
    const nn::Sampled s = nn::sample(out.logits, in.draws, nn::mask_logits(out.logits, in.edits, in.edit_words));
    tracer.output("sampled", s.token);
    tracer.output("sampled.logprob", s.logprob);
    tracer.output("sampled.top_tokens", s.top_tokens);
    tracer.output("sampled.top_logprobs", s.top_logprobs);
  }
  return tracer.finish();
}

}  // namespace reprise::models
