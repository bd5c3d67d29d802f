#include "engine/make_program.h"

namespace reprise::engine {
namespace {

Result<Program> compile(const models::ModelSpec& spec, const models::ModelConfig& config,
                        const models::TraceOptions& trace, const PipelineOptions& pipeline, const Platform& platform) {
  Program p;
  ASSIGN_OR_RETURN(p.graph, models::trace_model(spec, config, trace, *platform.ops));
  ASSIGN_OR_RETURN(p.report, run_pipeline(p.graph, pipeline, platform));
  ASSIGN_OR_RETURN(p.selection, select_kernels(p.graph, platform));
  p.plan = plan_memory(p.graph, p.selection.workspace);
  return p;
}

// Or says which change was the last one.
bool shows_graphs(const PassOptions& o) {
  return !o.print_after.empty() || !o.dump_dir.empty() || o.keep_graphs || o.bisect_limit >= 0;
}

}  // namespace

Result<PlanKey> program_key(const models::ModelSpec& spec, const models::ModelConfig& config,
                            const models::TraceOptions& trace, const PipelineOptions& pipeline,
                            const Platform& platform) {
  KeyBuilder key;
  key.add_build();
  key.add("architecture", spec.family.architecture);
  const auto& [fields, rope_divisors, pooling] = config;
  // The JSON after overrides, of which the typed fields are made; files add to it only what follows.
  key.add("config", fields.raw().dump(-1, ' ', true, Json::error_handler_t::replace));
  key.add("modelslim", fields.modelslim.dump(-1, ' ', true, Json::error_handler_t::replace));
  key.add("rope freqs", fields.has_rope_freqs);
  key.add("rope long", fields.rope.takes_long);
  key.add("pooling", fmt::format("{} {} {} {} {}", checkpoint::pool_kind_name(pooling.kind), pooling.normalise,
                                 pooling.yes, pooling.no, pooling.classifier));
  for (double d : rope_divisors) key.add("rope divisor", fmt::format("{}", d));
  const auto& [dtype, kv_dtype, index, max_tokens, max_sequences, max_logit_rows, max_pages, pool_pages, sampling,
               parts, adapters, images, kept_rows, source_width, most_drafts, token_shares, parts_on_host] = trace;
  key.add("dtypes", fmt::format("{} {} {}", dtype_name(dtype), dtype_name(kv_dtype), dtype_name(index)));
  for (int64_t n : {max_tokens, max_sequences, max_logit_rows, max_pages, pool_pages, parts, adapters})
    key.add("size", n);
  key.add("sampling", sampling);
  key.add("images", images);
  key.add("source", source_width);
  key.add("drafts", most_drafts);
  key.add("parts on host", parts_on_host);
  key.add("token shares", token_shares);
  for (int64_t layer : kept_rows) key.add("kept rows", layer);
  key.add(pipeline);
  key.add(platform);
  return key.key();
}

Result<Program> make_program(const models::ModelSpec& spec, const models::ModelConfig& config,
                             const models::TraceOptions& trace, const PipelineOptions& pipeline,
                             const Platform& platform, PlanCache& cache) {
  if (!cache.enabled() || shows_graphs(pipeline.passes)) return compile(spec, config, trace, pipeline, platform);
  ASSIGN_OR_RETURN(const PlanKey key, program_key(spec, config, trace, pipeline, platform));
  if (auto known = cache.load(key, platform)) return std::move(*known);
  ASSIGN_OR_RETURN(Program made, compile(spec, config, trace, pipeline, platform));
  cache.store(key, made);
  return made;
}

}  // namespace reprise::engine
