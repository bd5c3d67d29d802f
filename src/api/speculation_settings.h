// SpeculationSettings: how tokens are guessed, in the words of the settings and of vLLM's JSON. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "settings/binding.h"
#include "spec/options.h"

namespace reprise::api {

struct SpeculationSettings {
  std::string algorithm, adaptive, exact;
  std::optional<int64_t> draft_tokens, steps, max_rows;
  int64_t shortest_match, longest_match, depth, capacity;
  std::optional<double> threshold_single, threshold_acc;
  std::optional<std::string> config, draft_model_path, draft_quantization, draft_load_format;

  SpeculationSettings();  // the table's initial values
  SpeculationSettings(const SpeculationSettings&) = default;
  SpeculationSettings& operator=(const SpeculationSettings&) = default;
  // Where the values of the group Speculation lie.
  std::vector<settings::Binding> bindings();
  // Usage errors among them.
  Result<spec::SpecOptions> options() const;
  std::vector<std::string> notices() const;
  // The model that guesses, as `speculative_draft_model_path` or `speculative_config` names it; "": none does.
  Result<std::string> draft_model() const;
  // Where drafts are wanted and the engine says why it has none, or may give other bits with them: an error if the same
  // ones are required.
  Status check_engine(std::string_view refusal, const DeviceInfo& device) const;

 private:
  Status check_draft_model(spec::Algorithm algorithm, const std::string& model) const;
};

// What `speculative_config` says, over what `options` and `model` have.
Status read_speculative_config(std::string_view text, spec::SpecOptions& options, std::string& model);

}  // namespace reprise::api
