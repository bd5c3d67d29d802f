#include "common/graph_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/default_model.h"
#include "common/flags.h"
#include "engine/graph_sizes.h"

namespace reprise::apps {
namespace {

Result<std::vector<int64_t>> sizes_of(std::string_view flag, const std::optional<std::string>& list, int64_t limit) {
  if (!list || *list == "auto" || *list == "learned") return std::vector<int64_t>();
  return engine::parse_sizes(flag, *list, limit);
}

// Where there is no folder for caches, none is kept: that costs time and nothing else.
std::string plan_cache_folder(const std::string& said) {
  if (said == "off") return {};
  if (said != "auto") return said;
  const auto folder = cache_folder();
  return folder.is_ok() ? *folder + "/plans" : std::string();
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

}  // namespace

void GraphFlags::add_to(CLI::App& app) {
  app.option_defaults()->group("Graphs");
  add_choice(app, "--graph", graph, {"auto", "off", "required"},
             "auto captures what can be; required makes anything uncaptured an error");
  for (auto [name, target, usual] :
       {std::tuple{"--graph-decode", &decode, "whole"}, std::tuple{"--graph-prefill", &prefill, "piecewise"}})
    add_choice(app, name, *target, {"whole", "piecewise", "off"},
               fmt::format("how that phase is captured (default {})", usual));
  add_text(app, "--graph-decode-sizes", decode_sizes,
           "batch sizes to capture: auto (default), a list, or learned (from earlier runs' traffic)", "N,N,...");
  add_text(app, "--graph-prefill-sizes", prefill_sizes, "token counts to capture: auto (default), a list, or learned",
           "N,N,...");
  add_switch(app, "--disable-cuda-graph-padding", no_padding, "replay only at exact sizes");
  add_text(app, "--split-ops", split_ops, "ops at which piecewise graphs are cut, besides attention", "OP,OP,...");
  add_text(app, "--passes", passes, "all (default), none (optional passes left out), or a list of passes",
           "PASS,PASS,...");
  add_text(app, "--disable-pass", disable_pass, "passes to leave out", "PASS,PASS,...");
  add_text(app, "--print-after", print_after, "print the graph after these passes (or all) to standard error",
           "PASS,...");
  add_integer(app, "--pass-bisect-limit", bisect_limit, {-1, int64_t{1} << 40},
              "apply only the first N changes of optional passes; -1: all");
  add_text(app, "--pass-file", pass_file, "more rewrites, in the IR's text form", "FILE");
  add_text(app, "--dump-dir", dump_dir, "write the graph before and after every pass here", "DIR");
  add_text(app, "--plan-cache", plan_cache,
           "folder of compiled programs, for quick starts; auto (default): plans in $REPRISE_CACHE; off: none", "DIR");
  add_integer(
      app, "--verify-replay", verify_replay, {0, int64_t{1} << 40},
      "every N-th replay is compared with an eager, unfused run; a difference takes that size out of service and is "
      "reported; 0: none");
  add_texts(app, "--inject-fault", faults,
            "for tests of the checks: padding-leak, stale-input, wrong-length, bit-flip, alloc, kernel-error, hang",
            "KIND@STEP[:NODE]");
  add_text(app, "--graph-warmups", warmups, "runs before each capture; auto: 0 on the CPU and in the simulator, else 2",
           "N");
  app.option_defaults()->group("Graphs, in the words of other systems");
  GraphAliases& a = aliases;
  add_switch(app, "--disable-cuda-graph,--disable-decode-cuda-graph", a.disable_cuda_graph, "--graph-decode off");
  add_switch(app, "--enforce-eager", a.enforce_eager, "--graph-decode off --graph-prefill off");
  add_words(app, "--cuda-graph-bs,--cuda-graph-bs-decode", a.cuda_graph_bs, "--graph-decode-sizes", "N");
  add_integer(app, "--cuda-graph-max-bs,--cuda-graph-max-bs-decode", a.cuda_graph_max_bs, {1, 1 << 20},
              "--graph-decode-sizes by rule up to N");
  add_switch(app, "--enable-profile-cuda-graph", a.profile, "accepted; see reprise graph profile");
  add_switch(app, "--enable-torch-compile", a.torch_compile, "--passes all, the default");
  add_integer(app, "--torch-compile-max-bs", a.torch_compile_max_bs, {1, 1 << 20},
              "larger decode sizes run the unfused plan");
  add_switch(app, "--enable-piecewise-cuda-graph,--enforce-piecewise-cuda-graph", a.enable_piecewise,
             "--graph-prefill piecewise, the default");
  add_switch(app, "--disable-piecewise-cuda-graph,--disable-prefill-cuda-graph", a.disable_piecewise,
             "--graph-prefill off");
  add_words(app, "--piecewise-cuda-graph-tokens,--cuda-graph-bs-prefill", a.piecewise_tokens, "--graph-prefill-sizes",
            "N");
  add_integer(app, "--piecewise-cuda-graph-max-tokens,--cuda-graph-max-bs-prefill", a.piecewise_max_tokens,
              {1, 1 << 20}, "--graph-prefill-sizes by rule up to N");
  add_text(app, "--piecewise-cuda-graph-compiler,--cuda-graph-tc-compiler", a.piecewise_compiler,
           "eager, or inductor (with a notice)", "NAME");
  add_switch(app, "--enable-piecewise-npu-graph-decode", a.piecewise_npu_decode, "--graph-decode piecewise");
  add_text(app, "--compilation-config", a.compilation_config,
           "keys compiler, splitting_ops, capture_sizes, enable_debug_mode, decode, prefill", "JSON");
  add_text(app, "--cuda-graph-config", a.cuda_graph_config, "{\"decode\": {\"backend\", \"max_bs\", \"bs\"}, ...}",
           "JSON");
  add_choice(app, "--cuda-graph-backend-decode", a.backend_decode, {"full", "breakable", "tc_piecewise", "disabled"},
             "--graph-decode whole, piecewise, piecewise, off");
  add_choice(app, "--cuda-graph-backend-prefill", a.backend_prefill, {"breakable", "tc_piecewise", "disabled"},
             "--graph-prefill piecewise, piecewise, off");
  app.option_defaults()->group("Options");
}

Result<GraphMeaning> GraphFlags::meaning(const StepLimits& limits) const {
  GraphWords words;
  words.policy = graph;
  words.decode = decode;
  words.prefill = prefill;
  words.decode_sizes = decode_sizes;
  words.prefill_sizes = prefill_sizes;
  words.passes = passes;
  words.split_ops = split_ops;
  words.plan_cache = plan_cache;
  words.padding = !no_padding;
  return understand(words, aliases, limits);
}

Result<engine::GraphOptions> GraphFlags::options(const StepLimits& limits) const {
  ASSIGN_OR_RETURN(const GraphMeaning said, meaning(limits));
  const GraphWords& w = said.words;
  engine::GraphOptions o;
  ASSIGN_OR_RETURN(o.policy, engine::parse_graph_policy(w.policy));
  if (w.decode) {
    ASSIGN_OR_RETURN(o.decode, engine::parse_phase_mode("--graph-decode", *w.decode));
  }
  if (w.prefill) {
    ASSIGN_OR_RETURN(o.prefill, engine::parse_phase_mode("--graph-prefill", *w.prefill));
  }
  ASSIGN_OR_RETURN(o.decode_sizes, sizes_of("--graph-decode-sizes", w.decode_sizes, limits.batch));
  ASSIGN_OR_RETURN(o.prefill_sizes, sizes_of("--graph-prefill-sizes", w.prefill_sizes, limits.tokens));
  if (w.split_ops) o.split_ops = words_of(*w.split_ops);
  o.padding = w.padding;
  o.plan_cache = plan_cache_folder(w.plan_cache.value_or("auto"));
  o.choose_by_cost = learn;
  if (learn) o.learned_dir = o.plan_cache;  // what is learned while serving lies with the plans
  o.learn_decode_sizes = w.decode_sizes == "learned";
  o.learn_prefill_sizes = w.prefill_sizes == "learned";
  o.verify_replay = verify_replay;
  o.report_dir = dump_dir.value_or("");
  for (const std::string& text : faults) {
    ASSIGN_OR_RETURN(const engine::Fault fault, engine::parse_fault(text));
    o.faults.push_back(fault);
  }
  o.fused_decode_max = w.fused_decode_max;
  if (warmups != "auto") {
    auto n = parse_integer(warmups, {0, 100});
    if (!n.is_ok()) return n.status().at("--graph-warmups");
    o.warmups = static_cast<int>(*n);
  }
  PassOptions& p = o.pipeline.passes;
  o.pipeline.observe_linears = observe_linears;
  if (w.passes) p.enable = split_names(*w.passes);
  if (disable_pass) p.disable = split_names(*disable_pass);
  if (print_after) p.print_after = split_names(*print_after);
  p.bisect_limit = bisect_limit;
  p.keep_graphs = keep_graphs;
  if (dump_dir) p.dump_dir = *dump_dir;
  if (pass_file) o.pipeline.pass_file = *pass_file;
  return o;
}

}  // namespace reprise::apps
