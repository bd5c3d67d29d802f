// quantise_model(): a float model on disk to a folder of W8A8, with what that costs: the model is scored on a text as
// it was, the ranges of its activations are seen on another, its weights are quantised and written, and the new folder
// is scored on the same text. Steps whose text is empty are left out. Engines are opened and closed one after another;
// one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/model_settings.h"
#include "base/json.h"
#include "evaluation/perplexity.h"
#include "quantiser/checkpoint_quantiser.h"

namespace reprise::quantiser {

struct ModelQuantisation {
  api::ModelSettings model;          // of the float model
  std::vector<std::string> notices;  // into the log of every engine's start
  std::string path;                  // where the model lies
  std::string output;                // the folder that is written; not `path`
  QuantiseOptions options;           // but for dtype and threads, which are the model's
  std::string calibration;           // a text; "": none
  int64_t calibration_tokens = 16384;
  std::string text;  // for the perplexity before and after; "": none
  int64_t window = 512, max_windows = 0;
  // Takes sentences for the user, which name settings by their keys.
  std::function<void(const std::string&)> notice = [](const std::string&) {};
};

struct QuantisedModel {
  QuantisedCheckpoint checkpoint;
  std::optional<evaluation::Perplexity> before, after;
  OrderedJson report;  // also written, as quantization_report.json
};

Result<QuantisedModel> quantise_model(ModelQuantisation job);

}  // namespace reprise::quantiser
