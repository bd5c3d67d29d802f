// Tokenizer: text to token ids and back, as the model's own tokenizer.json, GGUF metadata or tiktoken.model describes
// it. Results equal those of HF tokenizers. Text that is not valid UTF-8 is first repaired: each maximal invalid part
// becomes U+FFFD, which is what HF would receive. A Tokenizer is a small handle on immutable data: copying is cheap,
// any thread may use it, and the Json or struct it was built from need not stay.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::text {

// The tokenizer metadata of a GGUF file; the code that reads the file fills it.
struct GgufTokenizer {
  std::string model;                // "gpt2" (byte-level BPE), "llama" (SentencePiece-style) or "t5" (unigram)
  std::string pre;                  // how "gpt2" cuts words; "" is "default"
  std::vector<std::string> tokens;  // by id
  std::vector<std::string> merges;  // "left right", best first; for "gpt2"
  std::vector<float> scores;        // by id; for "llama" and "t5"
  std::vector<int32_t>
      token_types;  // by id, or empty: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  int64_t bos = -1;
  int64_t eos = -1;
  int64_t unk = -1;
  int64_t pad = -1;
  int64_t sep = -1;
  int64_t mask = -1;
  std::optional<std::string> charsmap;  // the bytes by which "t5" rewrites characters
  // Where the file is silent, what this kind of vocabulary usually does.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_sep;  // between two texts, behind the end token of the first
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;
};

struct EncodeOptions {
  bool add_special_tokens = true;  // for example the begin-of-text token in front
  bool parse_special = true;       // special tokens written in the text count as such
};

// Two texts in one sequence.
struct EncodedPair {
  std::vector<int32_t> ids;
  // Tokens from here on are of the second kind ("token_type_ids" 1); none: ids.size().
  size_t second_kind = 0;
};

struct TokenizerParts;

// The same tokenizer as the content of a tokenizer.json, for programs that read no GGUF. Unsupported for "llama"
// vocabularies, as tokenizer.json has no model that merges by score, and for "t5".
Result<Json> tokenizer_json_from_gguf(const GgufTokenizer& gguf);

class Tokenizer {
 public:
  // `tokenizer` is tokenizer.json as base/json.h parses it, `config` tokenizer_config.json where there is one: it names
  // the begin and end tokens, and for classes of the Llama family says whether they are added. What is not understood
  // is an error that names its place; "truncation" and "padding" belong to training and are not looked at.
  static Result<Tokenizer> from_json(const Json& tokenizer, const Json* config = nullptr);
  // The same from the text of the file, which takes half the time.
  static Result<Tokenizer> from_json_text(std::string_view tokenizer, const Json* config = nullptr);
  static Result<Tokenizer> from_gguf(const GgufTokenizer& gguf);
  // `ranks` is the text of a tiktoken.model, `config` tokenizer_config.json: its class says how words are cut, which no
  // file does. Results equal those of tiktoken with the settings of the model's own code. Unsupported for other
  // classes.
  static Result<Tokenizer> from_tiktoken(std::string_view ranks, const Json& config);

  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;
  // Both texts with the special tokens that belong around them. The second one loses its last tokens where all would be
  // more than `most`. Unsupported where the tokenizer does not say how pairs are made.
  Result<EncodedPair> encode_pair(std::string_view first, std::string_view second, int64_t most) const;
  // A text with what stands around it, of which the text loses its last tokens where all would be more than `most`.
  // `at_end`: also the end token, where tokenizer_config.json asks for one and tokenizer.json does not add it.
  Result<std::vector<int32_t>> encode_within(std::string_view text, int64_t most, bool at_end) const;
  // Ids without a token say nothing. `skip_special` leaves special tokens out.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special = false) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  // The bytes that this token adds to a text in which others stand around it; part of a character, perhaps. Empty for
  // an id without a token.
  Result<std::string> token_bytes(int64_t id) const;
  int32_t vocab_size() const;  // one more than the highest id
  int32_t bos_id() const;      // -1 when there is none
  int32_t eos_id() const;
  int32_t unk_id() const;
  int32_t pad_id() const;
  bool is_special(int64_t id) const;

 private:
  friend class IncrementalDetokenizer;
  friend class TokenizerBuilder;
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace reprise::text
