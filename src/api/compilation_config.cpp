#include "api/compilation_config.h"

#include "base/json.h"

namespace reprise::api {
namespace {

constexpr int64_t kLargest = 1 << 20;

Result<Json> parse_object(std::string_view flag, std::string_view text) {
  ASSIGN_OR_RETURN(Json json, parse_json(text, flag));
  if (!json.is_object()) return invalid("{}: an object was expected, like {{\"compiler\": \"piecewise\"}}", flag);
  return json;
}

Status wrong_type(std::string_view where, std::string_view key, std::string_view expected) {
  return invalid("{}: {} must be {}", where, key, expected);
}

Result<std::string> text_of(std::string_view where, std::string_view key, const Json& v) {
  if (!v.is_string()) return wrong_type(where, key, "a text");
  return v.get<std::string>();
}

Result<int64_t> size_of_json(std::string_view where, std::string_view key, const Json& v) {
  if (!v.is_number_integer() || v.get<double>() < 1 || v.get<double>() > static_cast<double>(kLargest))
    return wrong_type(where, key, fmt::format("a whole number from 1 to {}", kLargest));
  return v.get<int64_t>();
}

Result<std::vector<int64_t>> sizes_of_json(std::string_view where, std::string_view key, const Json& v) {
  if (!v.is_array()) return wrong_type(where, key, "a list of sizes");
  std::vector<int64_t> out;
  for (const Json& item : v) {
    ASSIGN_OR_RETURN(int64_t n, size_of_json(where, fmt::format("every entry of {}", key), item));
    out.push_back(n);
  }
  return out;
}

Result<std::vector<std::string>> texts_of_json(std::string_view where, std::string_view key, const Json& v) {
  if (!v.is_array()) return wrong_type(where, key, "a list of op names");
  std::vector<std::string> out;
  for (const Json& item : v) {
    ASSIGN_OR_RETURN(auto s, text_of(where, fmt::format("every entry of {}", key), item));
    out.push_back(std::move(s));
  }
  return out;
}

Status set_compiler(CompilationConfig& c, std::string_view where, const std::string& name) {
  if (name == "eager") {
    c.decode.mode = "off";
  } else if (name == "npugraph") {
    c.decode.mode = "whole";
  } else if (name == "piecewise") {
    c.decode.mode = "piecewise";
  } else if (name == "npugraph_ex") {
    c.decode.mode = "whole";
    c.plan_cache = true;
  } else {
    return invalid("{}: compiler \"{}\" is not known; allowed: eager, npugraph, piecewise, npugraph_ex", where, name);
  }
  return Status::ok();
}

Result<std::string> mode_of_backend(std::string_view where, const std::string& name) {
  if (name == "full") return std::string("whole");
  if (name == "tc_piecewise" || name == "breakable") return std::string("piecewise");
  if (name == "disabled") return std::string("off");
  return invalid("{}: backend \"{}\" is not known; allowed: full, breakable, tc_piecewise, disabled", where, name);
}

Status read_phase(CompilationConfig& c, PhaseConfig& phase, bool prefill, std::string_view where, const Json& json) {
  if (!json.is_object()) return invalid("{}: an object was expected, like {{\"backend\": \"full\"}}", where);
  for (const auto& [key, v] : json.items()) {
    if (key == "backend") {
      ASSIGN_OR_RETURN(const std::string name, text_of(where, key, v));
      ASSIGN_OR_RETURN(phase.mode, mode_of_backend(where, name));
    } else if (key == "max_bs") {
      ASSIGN_OR_RETURN(phase.largest, size_of_json(where, key, v));
    } else if (key == "bs") {
      ASSIGN_OR_RETURN(phase.sizes, sizes_of_json(where, key, v));
    } else if (key == "tc_compiler") {
      ASSIGN_OR_RETURN(const std::string name, text_of(where, key, v));
      if (name != "eager" && name != "inductor")
        return invalid("{}: tc_compiler \"{}\" is not known; allowed: eager, inductor", where, name);
      if (name != "eager")
        c.no_effect.push_back(
            fmt::format("{} tc_compiler {}: pieces run what the passes made; effective: eager", where, name));
    } else if (prefill && (key == "full_prefill_max_req" || key == "full_prefill_prefix_chunk_tokens")) {
      RETURN_IF_ERROR(size_of_json(where, key, v).status());
      c.no_effect.push_back(fmt::format(
          "{} {}: one captured prefill serves any number of requests and any prefix; effective: no limit", where, key));
    } else {
      return invalid("{}: key \"{}\" is not known; allowed: backend, max_bs, bs, tc_compiler{}", where, key,
                     prefill ? ", full_prefill_max_req, full_prefill_prefix_chunk_tokens" : "");
    }
  }
  return Status::ok();
}

}  // namespace

Result<CompilationConfig> parse_compilation_config(std::string_view text) {
  constexpr std::string_view kFlag = "`compilation_config`";
  ASSIGN_OR_RETURN(const Json json, parse_object(kFlag, text));
  CompilationConfig c;
  for (const auto& [key, v] : json.items()) {
    if (key == "compiler") {
      ASSIGN_OR_RETURN(const std::string name, text_of(kFlag, key, v));
      RETURN_IF_ERROR(set_compiler(c, kFlag, name));
    } else if (key == "splitting_ops") {
      ASSIGN_OR_RETURN(c.splitting_ops, texts_of_json(kFlag, key, v));
    } else if (key == "capture_sizes") {
      ASSIGN_OR_RETURN(c.decode.sizes, sizes_of_json(kFlag, key, v));
    } else if (key == "enable_debug_mode") {
      if (!v.is_boolean()) return wrong_type(kFlag, key, "true or false");
      if (v.get<bool>())
        c.no_effect.push_back(fmt::format(
            "{} enable_debug_mode: addresses are fixed by the memory plan, which is checked at every start", kFlag));
    } else if (key == "decode" || key == "prefill") {
      // The later form by phase, in the same flag.
      const bool prefill = key == "prefill";
      RETURN_IF_ERROR(read_phase(c, prefill ? c.prefill : c.decode, prefill, fmt::format("{} {}", kFlag, key), v));
    } else {
      return invalid(
          "{}: key \"{}\" is not known; allowed: compiler, splitting_ops, capture_sizes, enable_debug_mode, decode, "
          "prefill",
          kFlag, key);
    }
  }
  if (json.contains("decode") && (json.contains("compiler") || json.contains("capture_sizes")))
    return invalid("{}: decode and {} say the same thing; give one of them", kFlag,
                   json.contains("compiler") ? "compiler" : "capture_sizes");
  return c;
}

Result<CompilationConfig> parse_cuda_graph_config(std::string_view text) {
  constexpr std::string_view kFlag = "`cuda_graph_config`";
  ASSIGN_OR_RETURN(const Json json, parse_object(kFlag, text));
  CompilationConfig c;
  for (const auto& [key, v] : json.items()) {
    if (key != "decode" && key != "prefill")
      return invalid("{}: phase \"{}\" is not known; allowed: decode, prefill", kFlag, key);
    const bool prefill = key == "prefill";
    RETURN_IF_ERROR(read_phase(c, prefill ? c.prefill : c.decode, prefill, fmt::format("{} {}", kFlag, key), v));
  }
  return c;
}

}  // namespace reprise::api
