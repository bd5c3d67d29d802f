// GgufTokenizer: the tokenizer metadata of a GGUF file as plain data, for the code that builds a tokenizer from it. A
// value that owns its strings and outlives the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/gguf.h"

namespace reprise::checkpoint {

// tokenizer.ggml.token_type
enum class GgufTokenKind : int32_t {
  Undefined = 0,
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6
};

struct GgufTokenizer {
  std::string model;                 // "gpt2" (byte-level BPE), "llama" (SentencePiece), "t5" (unigram), ...
  std::string pre;                   // the pre-tokenizer's name, "" when not given
  std::vector<std::string> tokens;   // by id
  std::vector<GgufTokenKind> kinds;  // empty, or one for each token
  std::vector<float> scores;         // empty, or one for each token
  std::vector<std::string> merges;   // "left right", best first
  std::optional<int64_t> bos_id, eos_id, eot_id, eom_id, unk_id, pad_id, sep_id, mask_id;  // all below tokens.size()
  std::optional<bool> add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
  std::optional<std::string> charsmap;                // the bytes of tokenizer.ggml.precompiled_charsmap
  std::string chat_template;                          // "" when not given
  std::map<std::string, std::string> chat_templates;  // further named ones
};

// Lengths and ids are checked. A file without tokenizer.ggml.tokens is an error of code NotFound.
Result<GgufTokenizer> read_gguf_tokenizer(const GgufFile& file);

}  // namespace reprise::checkpoint
