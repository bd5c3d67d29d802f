#include "common/graph_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/flags.h"
#include "engine/graph_sizes.h"

namespace reprise::apps {
namespace {

Result<std::vector<int64_t>> sizes_of(std::string_view flag, const std::optional<std::string>& list, int64_t limit) {
  if (!list || *list == "auto") return std::vector<int64_t>();
  if (*list == "learned") return invalid("{} learned is not in this build; allowed: auto, or a list like 1,2,8", flag);
  return engine::parse_sizes(flag, *list, limit);
}

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) out.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

OrderedJson phase_json(const engine::StepRunner* runner) {
  OrderedJson j;
  j["mode"] = phase_mode(runner);
  const bool captured = phase_mode(runner) != "off";
  j["sizes"] = captured ? OrderedJson(runner->sizes()) : OrderedJson::array();
  j["replays"] = runner ? runner->stats().replays : 0;
  j["fallbacks"] = OrderedJson::object();
  if (runner)
    for (const auto& [reason, count] : runner->stats().fallbacks) j["fallbacks"][reason] = count;
  j["padded_rows"] = runner ? runner->stats().padded_rows : 0;
  return j;
}

std::string phase_summary(std::string_view name, const engine::StepRunner* runner) {
  if (phase_mode(runner) == "off") {
    const std::string why = runner ? runner->uncaptured_reason() : std::string();
    return fmt::format("{} off{}", name, why.empty() ? "" : " (" + why + ")");
  }
  const auto& stats = runner->stats();
  uint64_t fallbacks = 0;
  std::string reasons;
  for (const auto& [reason, count] : stats.fallbacks) {
    fallbacks += count;
    reasons += fmt::format("{}{} x {}", reasons.empty() ? " (" : ", ", count, reason);
  }
  return fmt::format("{} {}: {} sizes up to {}, {} replays, {} fallbacks{}", name, phase_mode(runner),
                     runner->sizes().size(), runner->sizes().empty() ? 0 : runner->sizes().back(), stats.replays,
                     fallbacks, reasons.empty() ? "" : reasons + ")");
}

}  // namespace

void GraphFlags::add_to(CLI::App& app) {
  app.option_defaults()->group("Graphs");
  add_choice(app, "--graph", graph, {"auto", "off", "required"},
             "auto captures what can be; required makes anything uncaptured an error");
  for (auto [name, target, usual] :
       {std::tuple{"--graph-decode", &decode, "whole"}, std::tuple{"--graph-prefill", &prefill, "piecewise"}})
    add_choice(app, name, *target, {"whole", "piecewise", "off"},
               fmt::format("how that phase is captured ({})", usual));
  add_text(app, "--graph-decode-sizes", decode_sizes, "batch sizes to capture: auto, or a list", "N,N,...");
  add_text(app, "--graph-prefill-sizes", prefill_sizes, "token counts to capture: auto, or a list", "N,N,...");
  add_switch(app, "--disable-cuda-graph-padding", no_padding, "replay only at exact sizes");
  add_text(app, "--split-ops", split_ops, "ops at which piecewise graphs are cut, besides attention", "OP,OP,...");
  add_text(app, "--passes", passes, "all, none (optional passes left out), or a list of passes", "PASS,PASS,...");
  add_text(app, "--disable-pass", disable_pass, "passes to leave out", "PASS,PASS,...");
  add_text(app, "--print-after", print_after, "print the graph after these passes (or all) to standard error",
           "PASS,...");
  add_integer(app, "--pass-bisect-limit", bisect_limit, {-1, int64_t{1} << 40},
              "apply only the first N changes of optional passes; -1: all");
  add_text(app, "--pass-file", pass_file, "more rewrites, in the IR's text form", "FILE");
  add_text(app, "--dump-dir", dump_dir, "write the graph before and after every pass here", "DIR");
  app.option_defaults()->group("Options");
}

Result<engine::GraphOptions> GraphFlags::options(int64_t max_running_requests, int64_t chunked_prefill_size) const {
  engine::GraphOptions o;
  ASSIGN_OR_RETURN(o.policy, engine::parse_graph_policy(graph));
  if (o.policy == engine::GraphPolicy::Off) {
    for (const auto& [name, mode] : {std::pair{"--graph-decode", decode}, std::pair{"--graph-prefill", prefill}})
      if (mode && *mode != "off") return invalid("--graph off and {} {} contradict each other", name, *mode);
  }
  if (decode) {
    ASSIGN_OR_RETURN(o.decode, engine::parse_phase_mode("--graph-decode", *decode));
  }
  if (prefill) {
    ASSIGN_OR_RETURN(o.prefill, engine::parse_phase_mode("--graph-prefill", *prefill));
  }
  ASSIGN_OR_RETURN(o.decode_sizes, sizes_of("--graph-decode-sizes", decode_sizes, max_running_requests));
  ASSIGN_OR_RETURN(o.prefill_sizes, sizes_of("--graph-prefill-sizes", prefill_sizes, chunked_prefill_size));
  if (split_ops) o.split_ops = words_of(*split_ops);
  o.padding = !no_padding;
  PassOptions& p = o.pipeline.passes;
  if (passes) p.enable = split_names(*passes);
  if (disable_pass) p.disable = split_names(*disable_pass);
  if (print_after) p.print_after = split_names(*print_after);
  p.bisect_limit = bisect_limit;
  if (dump_dir) p.dump_dir = *dump_dir;
  if (pass_file) o.pipeline.pass_file = *pass_file;
  return o;
}

std::string phase_mode(const engine::StepRunner* runner) {
  if (!runner || !runner->uncaptured_reason().empty() || runner->mode() == GraphMode::Eager) return "off";
  return std::string(graph_mode_name(runner->mode()));
}

OrderedJson graph_json(engine::Engine& engine) {
  OrderedJson j;
  j["decode"] = phase_json(engine.decode_runner());
  j["prefill"] = phase_json(engine.prefill_runner());
  size_t planned = 0;
  for (const auto* runner : {engine.decode_runner(), engine.prefill_runner()}) {
    if (!runner) continue;
    for (const auto& program : runner->programs()) planned = std::max(planned, program.model->plan().arena_bytes);
  }
  const auto live = engine.device().pool().stats().live_by_label;
  const auto found = live.find("activations");
  j["memory_bytes"] = {{"planned", planned}, {"actual", found == live.end() ? 0 : found->second}};
  return j;
}

std::string graph_summary(engine::Engine& engine) {
  return fmt::format("{}; {}", phase_summary("decode", engine.decode_runner()),
                     phase_summary("prefill", engine.prefill_runner()));
}

}  // namespace reprise::apps
