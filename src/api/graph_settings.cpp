#include "api/graph_settings.h"

#include <algorithm>

#include "api/default_model.h"
#include "engine/graph_sizes.h"
#include "settings/values.h"

namespace reprise::api {
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

GraphSettings::GraphSettings() { settings::reset(bindings()); }

std::vector<settings::Binding> GraphSettings::bindings() {
  GraphAliases& a = aliases;
  return {{"graph", &graph},
          {"graph_decode", &decode},
          {"graph_prefill", &prefill},
          {"graph_decode_sizes", &decode_sizes},
          {"graph_prefill_sizes", &prefill_sizes},
          {"graph_streams", &streams},
          {"graph_prefetch_weights", &prefetch_weights},
          {"graph_prefetch_mb", &prefetch_mb},
          {"disable_cuda_graph_padding", &no_padding},
          {"split_ops", &split_ops},
          {"passes", &passes},
          {"disable_pass", &disable_pass},
          {"print_after", &print_after},
          {"pass_bisect_limit", &bisect_limit},
          {"pass_file", &pass_file},
          {"dump_dir", &dump_dir},
          {"plan_cache", &plan_cache},
          {"verify_replay", &verify_replay},
          {"inject_fault", &faults},
          {"graph_warmups", &warmups},
          {"disable_cuda_graph", &a.disable_cuda_graph},
          {"enforce_eager", &a.enforce_eager},
          {"cuda_graph_bs", &a.cuda_graph_bs},
          {"cuda_graph_max_bs", &a.cuda_graph_max_bs},
          {"enable_profile_cuda_graph", &a.profile},
          {"enable_torch_compile", &a.torch_compile},
          {"torch_compile_max_bs", &a.torch_compile_max_bs},
          {"enable_piecewise_cuda_graph", &a.enable_piecewise},
          {"disable_piecewise_cuda_graph", &a.disable_piecewise},
          {"piecewise_cuda_graph_tokens", &a.piecewise_tokens},
          {"piecewise_cuda_graph_max_tokens", &a.piecewise_max_tokens},
          {"piecewise_cuda_graph_compiler", &a.piecewise_compiler},
          {"enable_piecewise_npu_graph_decode", &a.piecewise_npu_decode},
          {"compilation_config", &a.compilation_config},
          {"cuda_graph_config", &a.cuda_graph_config},
          {"cuda_graph_backend_decode", &a.backend_decode},
          {"cuda_graph_backend_prefill", &a.backend_prefill}};
}

Result<GraphMeaning> GraphSettings::meaning(const StepLimits& limits) const {
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
  return resolve(words, aliases, limits);
}

Result<engine::GraphOptions> GraphSettings::options(const StepLimits& limits) const {
  ASSIGN_OR_RETURN(const GraphMeaning said, meaning(limits));
  const GraphWords& w = said.words;
  engine::GraphOptions o;
  ASSIGN_OR_RETURN(o.policy, engine::parse_graph_policy(w.policy));
  if (w.decode) {
    ASSIGN_OR_RETURN(o.decode, engine::parse_phase_mode("`graph_decode`", *w.decode));
  }
  if (w.prefill) {
    ASSIGN_OR_RETURN(o.prefill, engine::parse_phase_mode("`graph_prefill`", *w.prefill));
  }
  ASSIGN_OR_RETURN(o.decode_sizes, sizes_of("`graph_decode_sizes`", w.decode_sizes, limits.batch));
  ASSIGN_OR_RETURN(o.prefill_sizes, sizes_of("`graph_prefill_sizes`", w.prefill_sizes, limits.tokens));
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
    auto n = settings::parse_integer(warmups, {0, 100});
    if (!n.is_ok()) return n.status().at("`graph_warmups`");
    o.warmups = static_cast<int>(*n);
  }
  PassOptions& p = o.pipeline.passes;
  o.pipeline.observe_linears = observe_linears;
  o.pipeline.streams = streams == "1" ? 1 : 2;
  o.choose_streams = streams == "auto";
  o.choose_prefetch = prefetch_weights;
  o.pipeline.prefetch_bytes = prefetch_weights ? prefetch_mb << 20 : 0;
  if (w.passes) p.enable = split_names(*w.passes);
  if (disable_pass) p.disable = split_names(*disable_pass);
  if (print_after) p.print_after = split_names(*print_after);
  p.bisect_limit = bisect_limit;
  p.keep_graphs = keep_graphs;
  if (dump_dir) p.dump_dir = *dump_dir;
  if (pass_file) {
    ASSIGN_OR_RETURN(o.pipeline.pass_file, PassFile::read(*pass_file));
  }
  return o;
}

}  // namespace reprise::api
