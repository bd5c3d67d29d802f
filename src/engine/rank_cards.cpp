#include "engine/rank_cards.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>

#include "compile/plan_key.h"

namespace reprise::engine {
namespace {

std::string hash(std::string_view text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

}  // namespace

Status agree_on_model(ranks::Member& member, const EngineOptions& o, const checkpoint::ModelConfigFields& config,
                      const checkpoint::Checkpoint* checkpoint, const DeviceInfo& device) {
  RETURN_IF_ERROR(member.agree("build", hash(KeyBuilder::build_identity())));
  RETURN_IF_ERROR(member.agree("instruction set", device.isa));
  std::string tensors;
  if (checkpoint)
    for (const checkpoint::CheckpointTensor& t : checkpoint->tensors())
      tensors += fmt::format("{} {} {};", t.name, t.type_name, fmt::join(t.shape, ","));
  RETURN_IF_ERROR(
      member.agree("model", fmt::format("{} (configuration {}, {} tensors {})", config.architecture,
                                        hash(config.raw().dump(-1, ' ', true, Json::error_handler_t::replace)),
                                        checkpoint ? checkpoint->tensors().size() : 0, hash(tensors))));
  const PassOptions& p = o.graph.pipeline.passes;
  RETURN_IF_ERROR(member.agree(
      "settings",
      fmt::format("{}, cache {}, {}, steps of {} tokens and {} sequences, context {}, graphs {} {} {}, passes {} "
                  "without {}, experts over {}{}, sequences over {}, form {}, {} adapters of rank {}",
                  dtype_name(*o.dtype), dtype_name(*o.kv_dtype),
                  o.graph.pipeline.quantisation ? o.graph.pipeline.quantisation->summary() : "", o.chunked_prefill_size,
                  o.max_running_requests, o.context_length, static_cast<int>(o.graph.policy),
                  graph_mode_name(o.graph.decode), graph_mode_name(o.graph.prefill), fmt::join(p.enable, ","),
                  fmt::join(p.disable, ","), o.ep_size, o.dispatch ? " (sent)" : "", o.sequence_parts,
                  o.reduce_over_ranks ? "reduce" : "gather", o.max_loras, o.max_lora_rank)));
  // Elsewhere data goes by the vendor's collectives.
  if (device.kind == DeviceKind::Cpu) member.choose_copies();
  return Status::ok();
}

Result<int64_t> least_of_all(ranks::Member& member, int64_t mine) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, member.show(fmt::format("{}", mine)));
  int64_t least = mine;
  for (const std::string& text : all) {
    int64_t n = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (problem != std::errc() || end != text.data() + text.size())
      return error(Code::Internal, "a rank shows \"{}\" for a number", text);
    least = std::min(least, n);
  }
  return least;
}

std::string sizes_text(const Runners& runners) {
  std::string out;
  for (size_t p = 0; p < kPhaseCount && runners[p]; ++p)
    out += fmt::format("{}{} {} {}", p == 0 ? "" : ", ", kPhases[p].name, graph_mode_name(runners[p]->mode()),
                       fmt::join(runners[p]->sizes(), ","));
  return out;
}

}  // namespace reprise::engine
