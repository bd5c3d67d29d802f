// quantise_checkpoint(): a float checkpoint to W8A8 tensors: int8 rows with a scale each, and, for static linears, one
// scale and offset of the activations from what a calibration run has seen.
//
//   weight        scale[n] = max_k |W[n, k]| / 127, q = round half to even, in [-127, 127]
//   static        s_in = (max - min) / 255, o_in = round(-128 - min / s_in), with min <= 0 <= max over the text
//   smoothing     s[k] = max|x_k|^a / max_n|W[n, k]|^(1 - a) (SmoothQuant, Xiao et al. 2022): the columns of the
//   linears
//                 that read x are multiplied by it, and what makes x divided: the norm before them, or the rows of
//                 up_proj before down_proj
//
// Written as compressed-tensors (config.json's quantization_config) or as ModelSlim (quant_model_description.json). One
// thread calls it; it uses several.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "quantiser/calibration.h"

namespace reprise::quantiser {

enum class QuantFormat : uint8_t { CompressedTensors, ModelSlim };

struct QuantiseOptions {
  QuantFormat format = QuantFormat::CompressedTensors;
  bool static_activations = false;
  std::vector<std::string> dynamic;  // parts of names of linears that stay dynamic all the same
  std::vector<std::string> ignore;   // parts of names of linears that stay float
  double smooth = 0;                 // the exponent a, in (0, 1); 0: no smoothing
  DType dtype = DType::BF16;         // of everything that stays float
  int threads = 1;
};

struct QuantisedLinear {
  std::string weight;
  bool is_static = false;
  double weight_error = 0;             // |W - s q| / |W|, Frobenius
  std::optional<double> output_error;  // |y - y_q| / |y| over the sample rows of the calibration run
};

struct QuantisedCheckpoint {
  struct Tensor {
    std::string name;
    DType dtype = DType::F32;
    std::vector<int64_t> shape;
    std::vector<uint8_t> bytes;
  };
  std::vector<Tensor> tensors;
  std::vector<QuantisedLinear> linears;
  Json quantization_config;  // into config.json; null for ModelSlim
  Json description;          // quant_model_description.json; null for compressed-tensors
};

// `seen` may be empty for dynamic linears without smoothing; then there are no output errors. A linear that static
// quantisation or smoothing needs and that was not seen is an error.
Result<QuantisedCheckpoint> quantise_checkpoint(const checkpoint::Checkpoint& checkpoint, const InputObservations& seen,
                                                const QuantiseOptions& options,
                                                const std::function<void(const std::string& tensor)>& progress = {});

}  // namespace reprise::quantiser
