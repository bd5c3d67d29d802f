// Family: what one family of models says about its configuration: what Hugging Face fills in when config.json is
// silent, which fields it reads that others have not, which layers have a window, and what its GGUF files are like.
//
// Each family is defined in its own file of models/ and handed to the readers here, which know none by name. A plain
// value of static life; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/tensor_names.h"

namespace reprise::checkpoint {

class FieldReader;
class GgufFields;
class GgufFile;
struct ModelConfigFields;

// 0: the file must say it. Of kv_heads and head_dim: as many as heads, and hidden / heads. Of window: none.
struct SizeDefaults {
  int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, positions = 0;
  int64_t window = 0;
  double eps = 1e-6, theta = 1e4;
  double rotated = 1;  // part of a head that turns
  bool tied = false;   // the head is the embedding
};

struct GgufFamily {
  std::string_view name = {};        // general.architecture; empty: GGUF files of this family are not read
  std::string_view other_name = {};  // another one of files that are read alike
  bool windows = false;              // llama.cpp goes by attention.sliding_window
  bool qkv_bias = false;             // biases of q, k and v are no matter of attention_bias
  bool latent = false;               // latent attention, whose heads are told elsewhere
  std::string_view eps = "attention.layer_norm_rms_epsilon";
  std::string_view experts = {};  // config.json's name of the number of experts; empty: the family has none
  // Whether a file of that name is of this family, where several share it. Null: what no other one holds.
  Result<bool> (*holds)(const GgufFields& in) = nullptr;
  // Adds what only files of this family have (gguf_groups.h has the usual groups).
  Status (*add)(GgufFields& in) = nullptr;
  // Names that others have not, or that mean something else there; they go before the usual ones (gguf_names.cpp).
  std::span<const GgufTensorName> tensors = {};
  std::string_view layers = "model.layers.";  // what stands for "blk."
  bool interleaved_heads = false;             // the two halves of each head of q and k, row by row
  bool centred_norms = false;                 // norms multiply with 1 + weight; files hold that sum
  const GgufTower* tower = nullptr;           // its vision tower in a file of its own; null: none is read
};

struct Family {
  std::string_view architecture;             // "Qwen3ForCausalLM"
  std::string_view other_architecture = {};  // that means the same
  std::string_view model_type = {};          // of config.json
  std::string_view other_model_type = {};    // that means the same
  SizeDefaults sizes = {};
  // Fields that the family goes by and others do not: they may be overridden, and models/foreign_fields.cpp lets them
  // pass.
  std::span<const std::string_view> fields = {};
  // Reads them, or whole groups (config_groups.h). Sizes, biases and the activation are read already; positions are
  // not.
  Status (*read)(const FieldReader& in, ModelConfigFields& out) = nullptr;
  // Whether a layer has the window. Null: none has one.
  bool (*slides)(const ModelConfigFields& f, int64_t layer) = nullptr;
  bool window_switch = false;  // the window counts with use_sliding_window only
  GgufFamily gguf = {};
  // How files of safetensors call tensors otherwise; each rule in turn. A file does not say whose it is, so the rules
  // of all families apply: they must leave names alone that others have for something else.
  std::span<const NameRule> names = {};
  std::string_view wrapper = {};  // architecture whose text model this is: its text_config is read
  bool vision = false;            // the wrapper has a vision tower that is computed (checkpoint/vision.h)
  std::string_view eps_key = "rms_norm_eps";
  // Where it says what the gate of an MLP goes through, and what transformers takes where it says nothing. Empty: SiLU
  // by hidden_act alone.
  std::string_view activation_key = {}, activation = {};
  bool partial_rotation = false;    // heads may turn in part
  bool sliding_rotation = false;    // layers with a window have frequencies of their own, without scaling
  double sliding_theta = 0;         // their base where a file says none; 0: that of the others
  bool fixed_ntk = false;           // rope_type dynamic with "alpha" is a base multiplied once and for all
  bool long_rotation_only = false;  // rope_type yarn means longrope
};

// An architecture that is not here: the one that comes nearest, and what it has that the nearest has not.
struct MissingFamily {
  std::string_view architecture, model_type, nearest, missing;
  std::string_view gguf = {};  // general.architecture of its GGUF files; empty: there are none
};

// The families that a reader knows. `others`: it reads files of other families, too, as far as they say everything.
struct Families {
  std::span<const Family* const> list;
  bool others = true;
  std::span<const MissingFamily> missing = {};  // what errors say of these

  // "; nearest: LlamaForCausalLM; missing: learned positions" for an architecture that is not here; "" where nothing is
  // known of it. What is not named by itself may be so by its model_type.
  std::string nearest_to(std::string_view architecture, std::string_view model_type) const;
  std::string nearest_to_gguf(std::string_view name) const;

  const Family* find(std::string_view architecture) const;
  const Family* of_model_type(std::string_view model_type) const;
  // That of a GGUF file: the family that holds it, or else the one that asks nothing. Null when the name is unknown.
  Result<const Family*> of_gguf(const GgufFile& file) const;
};

}  // namespace reprise::checkpoint
