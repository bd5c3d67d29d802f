#include "models/model.h"

#include "ops/core.h"
#include "ops/draw.h"

namespace reprise::models {

Result<Graph> trace_model(const ModelSpec& spec, const ModelConfig& config, const TraceOptions& o,
                          const OpRegistry& ops) {
  const auto& f = config.fields;
  if (f.head_dim % 2 != 0)
    return invalid("{}: head_dim {} must be even: rotary embedding turns pairs", f.source, f.head_dim);
  if (f.latent && o.kv_dtype != o.dtype)
    return error(Code::Unsupported,
                 "{}: latent attention keeps its cache in the model's dtype, {}; `kv_cache_dtype` asks for {}",
                 f.source, dtype_name(o.dtype), dtype_name(o.kv_dtype));
  Tracer tracer(std::string(spec.family.architecture), ops);
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
  in.cu_seqlens = ids("cu_seqlens", {borders});
  in.last_rows = ids("last_rows", {logit_rows});
  if (o.sampling) {
    const Dim edited = tracer.symbol("E", o.max_sequences);
    in.draws = tracer.input("draws", TensorType{DType::I32, {logit_rows, Dim(kDrawWords)}});
    in.edits = tracer.input("edits", TensorType{DType::I32, {edited, Dim(kEditWords)}});
    in.edit_words = tracer.input("edit_words", TensorType{DType::I32, {Dim(o.edit_words(f.vocab_size))}});
  }
  for (int64_t l = 0; l < f.num_hidden_layers; ++l) {
    if (f.latent) {
      const auto rows = [&](std::string_view name, int64_t width) {
        return tracer.input(fmt::format("{}.{}", name, l),
                            TensorType{o.kv_dtype, {pages, Dim(kPageTokens), Dim(width)}});
      };
      in.c_kv.push_back({rows("c_kv", f.latent->kv_lora_rank), rows("k_pe", f.latent->qk_rope_head_dim)});
      continue;
    }
    in.kv.push_back(
        tracer.input(fmt::format("kv.{}", l), TensorType{o.kv_dtype,
                                                         {pages, Dim(2), Dim(f.num_key_value_heads), Dim(kPageTokens),
                                                          Dim(kv_row(o.kv_dtype, f.head_dim))}}));
  }
  const ModelOutputs out = spec.forward(config, in, nn::ParamScope(tracer, o.dtype));
  tracer.output("hidden", out.hidden);
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
