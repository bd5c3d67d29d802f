// QuantPlan: how each linear of a checkpoint is stored and computed, as its files say or as the user asks. A plain
// value that knows names and numbers and nothing of graphs; the pass quantise_linears carries it out on the graph, the
// loader's recipes on the weights. Made once at start-up.
//
//   ModelSlim            quant_model_description*.json next to the weights: a type for every tensor
//   compressed-tensors   quantization_config in config.json: groups of targets, and names to ignore
//   gguf                 matrices in block types that have kernels stay as they are in the file
//   mxfp4                quantization_config in config.json: experts are in blocks of 4-bit numbers, and stay so
//   w8a8_int8            a float checkpoint, quantised while it is loaded
//
// Anything these files say that cannot be computed exactly as they mean it is an error that names the place.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/block_format.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"

namespace reprise::checkpoint {

enum class Quantization : uint8_t { Auto, None, W8A8Int8, ModelSlim, CompressedTensors, Gguf, Mxfp4 };
Result<Quantization> parse_quantization(std::string_view name);
std::string_view quantization_name(Quantization q);

enum class LinearScheme : uint8_t {
  Float,
  W8A8Static,   // one scale and offset for all activations, known beforehand
  W8A8Dynamic,  // a scale for each token, symmetric
  Packed,       // the weight stays in its blocks, activations are floats; embedding tables as well
};

// Which tensors there are and what they mean.
enum class LinearStorage : uint8_t {
  Floats,             // weight: floats, to be quantised by rows
  ModelSlim,          // static: weight, quant_bias, deq_scale, input_scale, input_offset; dynamic: weight, weight_scale
  CompressedTensors,  // weight, weight_scale, static: input_scale and perhaps input_zero_point
  Blocks,             // weight: GGUF blocks
};

struct LinearQuant {
  LinearScheme scheme = LinearScheme::Float;
  LinearStorage storage = LinearStorage::Floats;
  float input_scale = 0, input_offset = 0;  // static: q = x / input_scale + input_offset
  BlockFormat block = BlockFormat::Q8_0;    // packed
  std::string unpacked = {};                // the block type of a float weight that had to be unpacked
};

struct QuantPlan {
  Quantization format = Quantization::None;
  std::map<std::string, LinearQuant, std::less<>> linears;  // by the name of the weight
  LinearQuant others;                                       // of linears that are not named
  // "<norm>.bias" of RMS norms that get one; the pass add_norm_biases carries this out.
  std::set<std::string, std::less<>> norm_biases;
  bool int8_activations = false;  // what packed weights are multiplied with is rounded to int8, by blocks of 32
  // Tensors that this plan has seen to and that no parameter needs to be made of.
  std::unordered_set<std::string> seen;

  const LinearQuant& of(std::string_view weight) const;
  // Everything that programs depend on, for the key of the plan cache.
  std::string text() const;
  // "modelslim (14 static, 3 float linears)"
  std::string summary() const;
};

// `checkpoint` is null for dummy weights.
Result<QuantPlan> make_quant_plan(Quantization asked, const ModelConfigFields& config, const Checkpoint* checkpoint);

// The two readers behind it.
Result<QuantPlan> read_modelslim_plan(const ModelConfigFields& config, const Checkpoint* checkpoint);
Result<QuantPlan> read_compressed_tensors_plan(const ModelConfigFields& config, const Checkpoint& checkpoint);

// For them: the number of a tensor that holds one; its absence is an error.
Result<float> single_number(const Checkpoint& checkpoint, const std::string& name);
Result<float> positive_number(const Checkpoint& checkpoint, const std::string& name);
// A tensor that may be there as long as it holds only zeros: then it is seen to.
Status allow_zeros(const Checkpoint& checkpoint, const std::string& name, std::string_view why, QuantPlan& plan);
// "a.b.weight" -> "a.b"; "" for other names.
std::string_view module_of(std::string_view weight);
// The kernels' name of a block type that may stay packed.
std::optional<BlockFormat> kept_format(StorageType type);
// Linears by the names of their weights: matrices, without tables and the patches of a vision tower.
bool is_linear_weight(const CheckpointTensor& t);

}  // namespace reprise::checkpoint
