// PoolingFields: what a model gives in place of tokens: a vector for each text, or a score for each pair. Read from the
// files that sentence-transformers writes beside config.json (modules.json, N_Pooling/config.json,
// sentence_bert_config.json, config_sentence_transformers.json) and from config.json itself, or from the metadata of a
// GGUF file. A plain value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::checkpoint {

class GgufFile;
struct ModelConfigFields;

enum class PoolKind : uint8_t {
  None,    // the model generates
  Last,    // the last row of a text
  Mean,    // the mean of its rows
  First,   // its first row
  Labels,  // the score of a pair, by a classifier of the first row
  YesNo,   // the score of a pair: how likely the answer is one token and not the other
};
constexpr std::string_view kPoolKinds[] = {"none", "last", "mean", "cls", "labels", "yes_no"};  // by PoolKind
constexpr std::string_view pool_kind_name(PoolKind kind) { return kPoolKinds[static_cast<size_t>(kind)]; }

// A dense layer behind the pooling, as sentence-transformers has them: parameters "dense.<number>.linear.weight" and,
// where it has one, "dense.<number>.linear.bias", in fp32.
struct DenseFields {
  std::string folder = {};  // beside modules.json, whose model.safetensors has them; "": they are in the GGUF file
  int64_t in = 0, out = 0;
  bool bias = false;
  bool tanh = false;  // of the sums; else they are the result
};

struct PoolingFields {
  PoolKind kind = PoolKind::None;
  std::vector<DenseFields> dense = {};              // of vectors, one behind the other
  bool normalise = false;                           // to length 1, at the end
  int64_t yes = 0, no = 0;                          // PoolKind::YesNo: the tokens, or the rows of a classifier
  bool classifier = false;                          // those of score.weight, and not of the head
  int64_t max_tokens = 0;                           // that texts are meant to have at most; 0: as the model
  int64_t least_size = 0;                           // vectors may be cut to so many numbers or more; 0: not at all
  std::vector<int64_t> sizes;                       // or to these alone
  std::map<std::string, std::string> prompts = {};  // what stands before a text, by name
  std::string default_prompt = {};                  // a name; "": none

  bool gives_vectors() const { return kind == PoolKind::Last || kind == PoolKind::Mean || kind == PoolKind::First; }
  bool gives_scores() const { return kind == PoolKind::Labels || kind == PoolKind::YesNo; }
};

// What `pooling` is set to: "auto", or one of last, mean, cls, none.
Result<std::optional<PoolKind>> parse_pool_kind(std::string_view name);

// What stands before a text: the prompt of this name, or of the default one. The error names those that there are.
Result<std::string> prompt_of(const PoolingFields& pooling, const std::optional<std::string>& name);

// What the folder says; PoolKind::None where nothing does. `config` is of the same folder.
Result<PoolingFields> read_pooling(const std::string& folder, const ModelConfigFields& config);
// What "<architecture>.pooling_type" says; vectors get length 1, as llama.cpp gives them. PoolKind::Labels is a
// reranker of any kind. Dense layers are the tensors "dense_2.weight" and "dense_3.weight".
Result<PoolingFields> read_pooling(const GgufFile& file);

inline std::string dense_name(size_t number) { return fmt::format("dense.{}.", number); }

}  // namespace reprise::checkpoint
