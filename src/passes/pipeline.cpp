#include "passes/pipeline.h"

#include "graph/text.h"
#include "passes/extension.h"
#include "passes/house_passes.h"
#include "passes/pass_file.h"

namespace reprise {

std::vector<Rewrite> house_rewrites(const OpRegistry& ops) {
  std::vector<Rewrite> out = canonical_rewrites();
  const nn::FusedOps fused = nn::fused_ops();
  for (const nn::FusedOp& op : fused.all()) out.push_back(rewrite_from(op, ops));
  return out;
}

Result<PassManager> make_pipeline(const PipelineOptions& options, const OpRegistry& ops,
                                  std::span<const std::shared_ptr<const Extension>> extensions) {
  PassManager m;
  const nn::FusedOps fused = nn::fused_ops();
  if (options.lora.count > 0) RETURN_IF_ERROR(m.add(add_lora(options.lora)));
  if (options.observe_linears) RETURN_IF_ERROR(m.add(observe_linears()));
  if (options.observe_experts) RETURN_IF_ERROR(m.add(observe_experts()));
  if (options.expand_latents) RETURN_IF_ERROR(m.add(expand_latents()));
  RETURN_IF_ERROR(m.add(canonicalise()));
  RETURN_IF_ERROR(m.add(common_subexpressions()));
  RETURN_IF_ERROR(m.add(hoist_row_gather()));
  if (options.quantisation && !options.quantisation->norm_biases.empty())
    RETURN_IF_ERROR(m.add(add_norm_biases(options.quantisation)));
  RETURN_IF_ERROR(m.add(quantise_linears(options.quantisation)));
  if (options.ranks.size > 1) RETURN_IF_ERROR(m.add(shard_over_ranks(options.ranks, options.part_inputs)));
  RETURN_IF_ERROR(m.add(pack_parallel_linears()));
  if (options.lora.count > 0) RETURN_IF_ERROR(m.add(lora_before_slices()));
  if (options.greedy) RETURN_IF_ERROR(m.add(greedy_head(options.ranks)));
  if (options.pass_file) {
    auto rewrites = parse_rewrites(options.pass_file->text, ops);
    if (!rewrites.is_ok()) return rewrites.status().at(options.pass_file->path);
    for (Rewrite& r : *rewrites) RETURN_IF_ERROR(m.add(pass_from(std::move(r), ops)).at(options.pass_file->path));
  }
  for (auto& e : extensions) {
    for (const nn::FusedOp& op : e->ops()) RETURN_IF_ERROR(m.add(pass_from(rewrite_from(op, ops), ops)).at(e->path()));
    for (const Rewrite& r : e->rewrites()) RETURN_IF_ERROR(m.add(pass_from(r, ops)).at(e->path()));
  }
  // Largest first, as in fused_ops(): a smaller fusion would take nodes away from a larger one.
  const auto fuse = [&](bool split_caches) -> Status {
    for (const nn::FusedOp& op : fused.all())
      if (op.split_caches == split_caches) RETURN_IF_ERROR(m.add(pass_from(rewrite_from(op, ops), ops)));
    return Status::ok();
  };
  RETURN_IF_ERROR(fuse(false));
  RETURN_IF_ERROR(m.add(load_quant_divisors()));
  RETURN_IF_ERROR(m.add(sampling_head()));
  if (options.finite_rows) RETURN_IF_ERROR(m.add(finite_head()));
  RETURN_IF_ERROR(m.add(legalise()));
  RETURN_IF_ERROR(m.add(split_kv_caches()));
  RETURN_IF_ERROR(fuse(true));
  RETURN_IF_ERROR(m.add(convert_once()));
  if (options.greedy) RETURN_IF_ERROR(m.add(share_head()));
  RETURN_IF_ERROR(m.add(dead_code()));
  if (options.streams > 1) RETURN_IF_ERROR(m.add(assign_streams()));
  if (options.prefetch_bytes > 0)
    RETURN_IF_ERROR(m.add(insert_prefetch(options.prefetch_bytes, options.prefetch_keys)));
  return m;
}

Result<PipelineReport> run_pipeline(Graph& graph, const PipelineOptions& options, const Platform& platform) {
  nn::FusedOps fused = nn::fused_ops();
  for (auto& e : platform.extensions)
    for (const nn::FusedOp& op : e->ops()) fused.add(op);
  for (const nn::FusedOp& op : fused.all())
    if (!platform.ops->find(op.name()))
      return error(Code::Internal, "the platform's registry does not know the fused op {}", op.name());
  ASSIGN_OR_RETURN(const PassManager manager, make_pipeline(options, *platform.ops, platform.extensions));
  PassContext context(*platform.ops, fused, &platform);
  PipelineReport report;
  if (options.passes.keep_graphs) report.traced = print(graph);
  ASSIGN_OR_RETURN(report.passes, manager.run(graph, context, options.passes));
  report.derived = std::move(context.derived());
  return report;
}

}  // namespace reprise
