// What other systems' graph flags mean here: SGLang's names, the compilation JSON and Ascend's environment variables,
// each turned into one native setting.
//
// The JSON outranks native flags, and those outrank aliases; what is outranked is said. Two that rank the same and
// disagree are an error. Pure functions on plain values: nothing here touches a device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"

namespace reprise::api {

// The flags as given; what was not given is empty.
struct GraphAliases {
  bool disable_cuda_graph = false;
  bool enforce_eager = false;                   // vLLM's
  std::vector<std::string> cuda_graph_bs = {};  // "1 2 4" or "1,2,4"
  std::optional<int64_t> cuda_graph_max_bs = {};
  bool profile = false;
  bool torch_compile = false;
  std::optional<int64_t> torch_compile_max_bs = {};
  bool enable_piecewise = false;
  bool disable_piecewise = false;
  std::vector<std::string> piecewise_tokens = {};
  std::optional<int64_t> piecewise_max_tokens = {};
  std::optional<std::string> piecewise_compiler = {};
  bool piecewise_npu_decode = false;
  std::optional<std::string> compilation_config = {};  // PR #15332's JSON
  std::optional<std::string> cuda_graph_config = {};   // the JSON by phase that came later
  // full, breakable, tc_piecewise, disabled
  std::optional<std::string> backend_decode = {}, backend_prefill = {};
};

// The native settings in the words of their flags; what was not said is empty.
struct GraphWords {
  std::string policy = "auto";                                       // auto, off, required
  std::optional<std::string> decode = {}, prefill = {};              // whole, piecewise, off
  std::optional<std::string> decode_sizes = {}, prefill_sizes = {};  // auto, learned, or a list
  std::optional<std::string> passes = {};
  std::optional<std::string> split_ops = {};
  std::optional<std::string> plan_cache = {};  // auto, off, or a folder
  bool padding = true;
  int64_t fused_decode_max = 0;  // decode sizes above it run the unfused plan; 0: none
};

// Something to say at the start. What is not honoured is an error under --graph required.
struct Notice {
  std::string text;
  bool honoured = true;
};

// The largest batch and number of tokens of one step.
struct StepLimits {
  int64_t batch = 0;
  int64_t tokens = 0;
};

struct GraphMeaning {
  GraphWords words;
  std::vector<Notice> notices = {};
};

Result<GraphMeaning> resolve(const GraphWords& native, const GraphAliases& aliases, const StepLimits& limits);

// What ASCEND_USE_FIA and STREAMS_PER_DEVICE ask for on a device.
struct Environment {
  bool ascend_fia = true;  // attention by one operator for both phases; false: by one for each
  std::vector<Notice> notices = {};
};

// A misspelt value is an error; a good one that changes nothing is reported as not needed. `get` returns null for what
// is not set.
Result<Environment> resolve_environment(const std::function<const char*(const char*)>& get, DeviceKind device);

}  // namespace reprise::api
