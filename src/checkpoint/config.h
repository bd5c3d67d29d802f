// ModelConfigFields: the hyper-parameters of a model, typed and range-checked, from config.json or from GGUF metadata
// (which is first turned into the same JSON, so both take the same road and the same overrides). A plain value. Knows
// the Hugging Face spelling of things and nothing of how a model is computed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/family.h"
#include "checkpoint/gguf.h"
#include "checkpoint/vision.h"

namespace reprise::checkpoint {

enum class RopeKind : uint8_t { None, Linear, Dynamic, Llama3, Yarn, Long };
std::string_view rope_kind_name(RopeKind k);

// `rope_scaling` (with "type" or "rope_type") or `rope_parameters` of transformers 5. Fields that the file left out are
// nullopt where Hugging Face derives them from other fields, else Hugging Face's default.
struct RopeScaling {
  RopeKind kind = RopeKind::None;
  std::optional<double> factor;                             // always present but for yarn with "factor": null
  std::optional<int64_t> original_max_position_embeddings;  // llama3 and yarn alone
  double low_freq_factor = 1.0;                             // llama3
  double high_freq_factor = 4.0;                            // llama3
  std::optional<double> attention_factor;                   // yarn, this one and below
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;  // latent attention: of every kind of scaling
  bool truncate = true;
  // longrope: lists that divide the frequencies. The short one is for contexts up to max_position_embeddings, which is
  // the old length then; the long one for those up to long_positions (0: there are none).
  std::vector<double> short_factor, long_factor;
  int64_t long_positions = 0;
  bool takes_long = false;  // the context is of the long list, and so are sequences of any length

  const std::vector<double>& divisors() const { return takes_long ? long_factor : short_factor; }
};

// Positions of layers with a window, where they turn otherwise than those of the others.
struct SlidingRope {
  double theta = 10000.0;
  RopeScaling scaling;
};

// Multi-head latent attention (DeepSeek): what every layer compresses queries, keys and values to.
struct LatentFields {
  int64_t q_lora_rank = 0;  // 0: queries are not compressed
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  bool rope_interleave = true;  // pairs of neighbours are rotated
};

// Mixtures of experts; count 0 when the architecture has none.
struct ExpertFields {
  int64_t count = 0;
  int64_t per_token = 0;
  int64_t intermediate = 0;           // of one expert
  int64_t shared_intermediate = 0;    // of the experts that every token goes to; 0: there are none
  bool normalise = false;             // weights add up to 1 over those chosen
  int64_t step = 1;                   // layers step - 1, 2 step - 1, ... have experts ...
  std::vector<int64_t> dense_layers;  // ... but these
  int64_t first_layer = 0;            // and those before this one
  // DeepSeek: how experts are chosen (nn/experts.h).
  std::string score = "softmax", group_score = "max";
  bool choice_bias = false;
  double scale = 1;
  int64_t groups = 1, top_groups = 1;
  bool at_layer(int64_t layer) const;
};

struct ModelConfigFields {
  std::string source;              // what the errors name
  std::string architecture;        // "LlamaForCausalLM"
  const Family* family = nullptr;  // of that architecture; null where the reader knows none
  std::string model_type;          // "llama", "" when not given
  bool wrapped = false;            // the text model of a larger one, whose other tensors are not loaded

  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;

  double rope_theta = 10000.0;
  RopeScaling rope;
  std::optional<SlidingRope> sliding_rope;
  double partial_rotary_factor = 1.0;  // 1 in most families; GGUF files may say otherwise
  // GGUF only: divide each rotary frequency by the tensor "rope_freqs.weight" (this is how GGUF stores llama3 scaling).
  bool has_rope_freqs = false;

  bool tie_word_embeddings = false;
  int64_t nextn_layers =
      0;                   // layers behind num_hidden_layers that predict further tokens; files may keep their weights
  std::string hidden_act;  // "silu", "gelu", "gelu_tanh"
  bool attention_bias = false;
  bool mlp_bias = false;
  bool qkv_bias = true;  // Qwen2-MoE

  // Numbers of a single family, by their names in the file (Family::read fills them in).
  std::map<std::string, double, std::less<>> numbers;
  double number(std::string_view name) const;  // CHECKs that the family has read it
  std::vector<int64_t> unrotated_layers;       // whose positions do not turn

  ExpertFields experts;

  std::optional<LatentFields> latent;  // head_dim is then qk_rope_head_dim: what is rotated

  std::optional<VisionFields> vision;  // a tower for images in front of the text model

  std::optional<int64_t> sliding_window;
  bool use_sliding_window = false;  // Qwen: the window counts only when this is set
  int64_t max_window_layers = 0;    // Qwen: layers below this one attend in full
  bool both_sides = false;          // rows see those behind them: nothing is cached, and the model gives vectors
  // Empty, or "full_attention" or another kind that the family has for each layer.
  std::vector<std::string> layer_types;
  int64_t attention_chunk = 0;  // tokens of a chunk, in which "chunked_attention" stays; 0: there are none
  // Whether layer_types lists the layer as sliding; none where there is no list.
  std::optional<bool> listed_as_sliding(int64_t layer) const;
  // The attention window of a layer by the family's rule, 0 = the whole context.
  int64_t window_of_layer(int64_t layer) const;
  // Tokens of a chunk that the layer's attention stays in, 0 = the whole context.
  int64_t chunk_of_layer(int64_t layer) const;

  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> pad_token_id;
  std::optional<DType> dtype;  // torch_dtype or dtype; not given by GGUF

  Json quantization;  // quantization_config or compression_config as it stands; null when there is none
  Json modelslim;     // quant_model_description*.json of the folder; null when there is none

  // One line each of what the file says and has no effect, and of what is computed otherwise than a reader may expect.
  std::vector<std::string> notices;

  // The whole JSON after overrides, for fields of single families (experts, latent attention).
  const Json& raw() const { return raw_json; }
  Json raw_json;
};

// `overrides` are "key=value" (value is JSON, or else a string; "rope_scaling.factor=4" reaches inside). An
// architecture that is none of `families` is an error that lists them, before anything else is looked at, unless others
// may be read.
Result<ModelConfigFields> parse_model_config(Json config, std::string_view source,
                                             std::span<const std::string> overrides, const Families& families);
// `path` is a GGUF file, a folder with config.json, or a config.json itself. Tensors need not exist except in GGUF.
Result<ModelConfigFields> read_model_config(const std::string& path, std::span<const std::string> overrides,
                                            const Families& families);
// `mmproj`: the file of its vision tower; null: there is none, and text is all that it reads.
Result<ModelConfigFields> read_model_config(const GgufFile& file, std::span<const std::string> overrides,
                                            const Families& families, const GgufFile* mmproj = nullptr);

// GGUF metadata (and which tensors there are) in config.json's words.
Result<Json> config_json_from_gguf(const GgufFile& file, const Families& families);
// Known keys are those of the table in config_keys.cpp, those of the families and those that `config` already has; any
// other is an error that lists close names.
Status apply_overrides(Json& config, std::span<const std::string> overrides, const Families& families);

}  // namespace reprise::checkpoint
