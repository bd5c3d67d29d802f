#include "api/graph_aliases.h"

#include <algorithm>

#include "api/compilation_config.h"
#include "base/lower_case.h"
#include "engine/graph_sizes.h"
#include "settings/values.h"

namespace reprise::api {
namespace {

// Ops of other systems and what is one here. SGLang cuts at its layers with states by these names in turn: the gated
// delta rule's own, that of all of them, and Mamba-2's in Nemotron-H.
struct OpAlias {
  std::string_view name;
  std::vector<std::string_view> ops;
};
const OpAlias kOpAliases[] = {{"atb._npu_paged_attention", {"paged_attention"}},
                              {"sglang.unified_attention_with_output", {"paged_attention"}},
                              {"sglang.gdn_with_output", {"gated_delta"}},
                              {"sglang.unified_linear_attention_with_output", {"gated_delta", "state_space"}},
                              {"sglang.nemotron_mamba2_with_output", {"state_space"}}};

enum class Rank : uint8_t { None, Alias, Native, Json };  // later ones win

// One native setting while the flags are read: what it is, who said so, and how much that one counts.
struct Setting {
  std::string name;  // of the native flag
  std::optional<std::string> value;
  std::string from;
  Rank rank = Rank::None;
};

class Settings {
 public:
  Setting decode{"`graph_decode`", {}, {}}, prefill{"`graph_prefill`", {}, {}};
  Setting decode_sizes{"`graph_decode_sizes`", {}, {}}, prefill_sizes{"`graph_prefill_sizes`", {}, {}};
  Setting passes{"`passes`", {}, {}}, split_ops{"`split_ops`", {}, {}}, plan_cache{"`plan_cache`", {}, {}};
  std::vector<Notice> notices;

  // Callers go from the lowest rank to the highest.
  Status set(Setting& s, Rank rank, std::string value, const std::string& from) {
    if (s.value && s.rank == rank && *s.value != value)
      return invalid("{} and {} contradict each other: {} {} or {}", s.from, from, s.name, *s.value, value);
    if (s.value && s.rank != rank && *s.value != value)
      notices.push_back({fmt::format("{} is outranked by {}; effective: {} {}", s.from, from, s.name, value)});
    else if (rank != Rank::Native)
      notices.push_back({fmt::format("{}: {} {}", from, s.name, value)});
    s.value = std::move(value);
    s.from = from;
    s.rank = rank;
    return Status::ok();
  }
  Status set_native(Setting& s, const std::optional<std::string>& value) {
    if (!value) return Status::ok();
    // With its value, because the native flags have several.
    return set(s, Rank::Native, *value, fmt::format("{} {}", s.name, *value));
  }
};

// "1 2 4", "1,2,4", or as a Python list: "[1, 2, 4]".
Result<std::vector<int64_t>> list_of(std::string_view flag, const std::vector<std::string>& words) {
  std::string list = fmt::format("{}", fmt::join(words, ","));
  if (list.starts_with('[') && list.ends_with(']')) {
    list = list.substr(1, list.size() - 2);
    std::erase(list, ' ');
    for (size_t at = list.find(",,"); at != std::string::npos; at = list.find(",,")) list.erase(at, 1);
  }
  return engine::parse_sizes(flag, list, 1 << 20);
}

// SGLang's backends of captured graphs.
std::string mode_of(const std::string& backend) {
  return backend == "full" ? "whole" : backend == "disabled" ? "off" : "piecewise";
}

// The original drops sizes above what can run and appends that largest size; so do we, and say it.
std::string fitted(std::vector<int64_t> sizes, int64_t limit, const std::string& from, std::vector<Notice>& notices) {
  if (sizes.back() > limit) {
    std::erase_if(sizes, [&](int64_t n) { return n > limit; });
    if (sizes.empty() || sizes.back() != limit) sizes.push_back(limit);
    notices.push_back({fmt::format("{}: a step holds at most {}; sizes above are left out", from, limit)});
  }
  return fmt::format("{}", fmt::join(sizes, ","));
}

// A list and the largest size by rule are two ways to say the same thing; the list counts.
Status set_sizes(Settings& out, Setting& s, Rank rank, std::vector<int64_t> list, const std::string& list_from,
                 std::optional<int64_t> largest, const std::string& largest_from, int64_t limit,
                 const std::function<std::vector<int64_t>(int64_t)>& rule) {
  if (!list.empty()) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    if (largest && *largest != list.back())
      out.notices.push_back({fmt::format("{} {} has no effect beside {}, whose largest size is {}", largest_from,
                                         *largest, list_from, list.back())});
    return out.set(s, rank, fitted(list, limit, list_from, out.notices), list_from);
  }
  if (!largest) return Status::ok();
  const std::string from = fmt::format("{} {}", largest_from, *largest);
  if (*largest > limit)
    out.notices.push_back({fmt::format("{}: a step holds at most {}; effective: {}", from, limit, limit)});
  return out.set(s, rank, fmt::format("{}", fmt::join(rule(std::min(*largest, limit)), ",")), from);
}

struct SizeRules {
  std::function<std::vector<int64_t>(int64_t)> decode, prefill;
};

SizeRules size_rules(bool padding) {
  const auto rule = padding ? engine::SizeRule::Padded : engine::SizeRule::Exact;
  return {[rule](int64_t n) { return engine::decode_sizes(n, rule); }, engine::prefill_sizes};
}

Status read_aliases(Settings& out, const GraphAliases& a, const StepLimits& limits, const SizeRules& rules) {
  const auto set = [&](bool given, Setting& s, const char* value, const char* from) {
    return given ? out.set(s, Rank::Alias, value, from) : Status::ok();
  };
  RETURN_IF_ERROR(set(a.disable_cuda_graph, out.decode, "off", "`disable_cuda_graph`"));
  RETURN_IF_ERROR(set(a.enforce_eager, out.decode, "off", "`enforce_eager`"));
  RETURN_IF_ERROR(set(a.enforce_eager, out.prefill, "off", "`enforce_eager`"));
  RETURN_IF_ERROR(set(a.piecewise_npu_decode, out.decode, "piecewise", "`enable_piecewise_npu_graph_decode`"));
  RETURN_IF_ERROR(set(a.enable_piecewise, out.prefill, "piecewise", "`enable_piecewise_cuda_graph`"));
  RETURN_IF_ERROR(set(a.disable_piecewise, out.prefill, "off", "`disable_piecewise_cuda_graph`"));
  if (a.backend_decode)
    RETURN_IF_ERROR(out.set(out.decode, Rank::Alias, mode_of(*a.backend_decode),
                            fmt::format("`cuda_graph_backend_decode` {}", *a.backend_decode)));
  if (a.backend_prefill)
    RETURN_IF_ERROR(out.set(out.prefill, Rank::Alias, mode_of(*a.backend_prefill),
                            fmt::format("`cuda_graph_backend_prefill` {}", *a.backend_prefill)));
  RETURN_IF_ERROR(set(a.torch_compile, out.passes, "all", "`enable_torch_compile`"));
  std::vector<int64_t> decode, prefill;
  if (!a.cuda_graph_bs.empty()) {
    ASSIGN_OR_RETURN(decode, list_of("`cuda_graph_bs`", a.cuda_graph_bs));
  }
  if (!a.piecewise_tokens.empty()) {
    ASSIGN_OR_RETURN(prefill, list_of("`piecewise_cuda_graph_tokens`", a.piecewise_tokens));
  }
  RETURN_IF_ERROR(set_sizes(out, out.decode_sizes, Rank::Alias, decode, "`cuda_graph_bs`", a.cuda_graph_max_bs,
                            "`cuda_graph_max_bs`", limits.batch, rules.decode));
  RETURN_IF_ERROR(set_sizes(out, out.prefill_sizes, Rank::Alias, prefill, "`piecewise_cuda_graph_tokens`",
                            a.piecewise_max_tokens, "`piecewise_cuda_graph_max_tokens`", limits.tokens, rules.prefill));
  if (a.piecewise_compiler && *a.piecewise_compiler == "inductor")
    out.notices.push_back(
        {"`piecewise_cuda_graph_compiler` inductor: pieces run what the passes made; effective: eager", false});
  else if (a.piecewise_compiler && *a.piecewise_compiler != "eager")
    return invalid("`piecewise_cuda_graph_compiler` \"{}\" is not known; allowed: eager, inductor",
                   *a.piecewise_compiler);
  return Status::ok();
}

std::string split_ops_of(const std::vector<std::string>& names, const std::string& from, std::vector<Notice>& notices) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    std::vector<std::string> mine{name};
    for (const OpAlias& alias : kOpAliases)
      if (alias.name == name) {
        mine.assign(alias.ops.begin(), alias.ops.end());
        notices.push_back({fmt::format("{}: {} is {} here", from, name, fmt::join(mine, " and "))});
      }
    for (std::string& op : mine)
      if (std::find(out.begin(), out.end(), op) == out.end()) out.push_back(std::move(op));
  }
  return fmt::format("{}", fmt::join(out, ","));
}

Status read_json(Settings& out, const CompilationConfig& c, const std::string& flag, const StepLimits& limits,
                 const SizeRules& rules) {
  if (c.decode.mode) RETURN_IF_ERROR(out.set(out.decode, Rank::Json, *c.decode.mode, flag));
  if (c.prefill.mode) RETURN_IF_ERROR(out.set(out.prefill, Rank::Json, *c.prefill.mode, flag));
  RETURN_IF_ERROR(set_sizes(out, out.decode_sizes, Rank::Json, c.decode.sizes, flag, c.decode.largest,
                            flag + " decode max_bs", limits.batch, rules.decode));
  RETURN_IF_ERROR(set_sizes(out, out.prefill_sizes, Rank::Json, c.prefill.sizes, flag, c.prefill.largest,
                            flag + " prefill max_bs", limits.tokens, rules.prefill));
  if (c.splitting_ops) {
    const std::string ops = split_ops_of(*c.splitting_ops, flag, out.notices);
    RETURN_IF_ERROR(out.set(out.split_ops, Rank::Json, ops, flag));
  }
  // A folder of the user's stays.
  if (c.plan_cache && (!out.plan_cache.value || *out.plan_cache.value == "off"))
    RETURN_IF_ERROR(out.set(out.plan_cache, Rank::Json, "auto", flag));
  for (const std::string& text : c.no_effect) out.notices.push_back({text, false});
  return Status::ok();
}

Status check_policy(const std::string& policy, const Settings& s, const std::vector<Notice>& notices) {
  for (const Setting* mode : {&s.decode, &s.prefill}) {
    if (!mode->value) continue;
    const bool off = *mode->value == "off";
    if (policy == "off" && !off) return invalid("`graph` off and {} contradict each other", mode->from);
    if (policy == "required" && off)
      return invalid("`graph` required and {} contradict each other: {} off captures nothing", mode->from, mode->name);
  }
  if (policy != "required") return Status::ok();
  for (const Notice& n : notices)
    if (!n.honoured) return invalid("`graph` required: {}", n.text);
  return Status::ok();
}

}  // namespace

Result<GraphMeaning> resolve(const GraphWords& native, const GraphAliases& a, const StepLimits& limits) {
  Settings s;
  const SizeRules rules = size_rules(native.padding);
  RETURN_IF_ERROR(read_aliases(s, a, limits, rules));
  RETURN_IF_ERROR(s.set_native(s.decode, native.decode));
  RETURN_IF_ERROR(s.set_native(s.prefill, native.prefill));
  RETURN_IF_ERROR(s.set_native(s.decode_sizes, native.decode_sizes));
  RETURN_IF_ERROR(s.set_native(s.prefill_sizes, native.prefill_sizes));
  RETURN_IF_ERROR(s.set_native(s.passes, native.passes));
  RETURN_IF_ERROR(s.set_native(s.split_ops, native.split_ops));
  RETURN_IF_ERROR(s.set_native(s.plan_cache, native.plan_cache));
  if (a.compilation_config) {
    ASSIGN_OR_RETURN(const CompilationConfig c, parse_compilation_config(*a.compilation_config));
    RETURN_IF_ERROR(read_json(s, c, "`compilation_config`", limits, rules));
  }
  if (a.cuda_graph_config) {
    ASSIGN_OR_RETURN(const CompilationConfig c, parse_cuda_graph_config(*a.cuda_graph_config));
    RETURN_IF_ERROR(read_json(s, c, "`cuda_graph_config`", limits, rules));
  }
  RETURN_IF_ERROR(check_policy(native.policy, s, s.notices));

  GraphMeaning out;
  out.words = native;
  out.words.decode = s.decode.value;
  out.words.prefill = s.prefill.value;
  out.words.decode_sizes = s.decode_sizes.value;
  out.words.prefill_sizes = s.prefill_sizes.value;
  out.words.passes = s.passes.value;
  out.words.split_ops = s.split_ops.value;
  out.words.plan_cache = s.plan_cache.value;
  if (a.torch_compile_max_bs) {
    const std::string from = fmt::format("`torch_compile_max_bs` {}", *a.torch_compile_max_bs);
    if (out.words.passes == "none") {
      s.notices.push_back({from + " has no effect beside `passes` none"});
    } else {
      out.words.fused_decode_max = *a.torch_compile_max_bs;
      s.notices.push_back(
          {fmt::format("{}: decode sizes above {} run the unfused plan", from, *a.torch_compile_max_bs)});
    }
  }
  if (a.profile)
    s.notices.push_back(
        {"`enable_profile_cuda_graph`: captures are not profiled; reprise graph profile times "
         "every launch of a step"});
  out.notices = std::move(s.notices);
  return out;
}

Result<Environment> resolve_environment(const std::function<const char*(const char*)>& get, DeviceKind device) {
  Environment out;
  const bool ascend = device == DeviceKind::Ascend;
  if (const char* fia = get("ASCEND_USE_FIA"); fia && *fia) {
    const std::string word = lower_case(fia);
    if (word != "0" && word != "1" && word != "true" && word != "false")
      return invalid("ASCEND_USE_FIA=\"{}\" is not known; allowed: 0, 1, true, false", fia);
    out.ascend_fia = word == "1" || word == "true";
    if (!ascend)
      out.notices.push_back({fmt::format("ASCEND_USE_FIA={} is not needed: it is for `device` ascend", fia)});
    else if (out.ascend_fia)
      out.notices.push_back(
          {fmt::format("ASCEND_USE_FIA={}: attention by FusedInferAttentionScore, the default", fia)});
    else
      out.notices.push_back(
          {fmt::format("ASCEND_USE_FIA={}: attention by PromptFlashAttention and IncreFlashAttention", fia)});
  }
  if (const char* streams = get("STREAMS_PER_DEVICE"); streams && *streams) {
    auto n = settings::parse_integer(streams, {1, 1 << 20});
    if (!n.is_ok()) return n.status().at("STREAMS_PER_DEVICE");
    out.notices.push_back({fmt::format("STREAMS_PER_DEVICE={} is not needed: {}", *n,
                                       ascend ? "the streams of captured graphs are planned before they are captured"
                                              : "captured graphs occupy no streams here")});
  }
  return out;
}

}  // namespace reprise::api
