// What a Tokenizer is made of, for the files that build and run it. TokenizerBuilder fills the parts on one thread and
// hands them over; from then on they are immutable.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_added_tokens.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_decoder.h"
#include "text/tokenizer_normalizer.h"
#include "text/tokenizer_scores.h"
#include "text/tokenizer_unigram.h"
#include "text/tokenizer_vocabulary.h"
#include "text/tokenizer_word_pieces.h"

namespace reprise::text {

struct TokenizerParts {
  Vocabulary vocabulary;  // what the model can make; added tokens may have ids beyond it or in its gaps
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<BpeModel, ScoreModel, WordPieceModel, UnigramModel> model;
  Decoder decoder;
  // What add_special_tokens puts around the text.
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  // And around and between the two texts of a pair, where the file says how pairs are made.
  struct Pair {
    std::vector<int32_t> before, between, after;
    // Where the part of the second kind begins: in `between`, counted from its beginning.
    size_t second_kind = 0;
    bool kinds = false;  // whether any part is of the second kind
  };
  std::optional<Pair> pair;
  Status pair_problem;        // why there is none, where the file has one
  bool asks_for_end = false;  // the config wants the end token behind every text
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t unk = -1;
  int32_t pad = -1;

  std::optional<std::string_view> token(int64_t id) const;
  int32_t find(std::string_view token) const;  // -1 when there is none
};

class TokenizerBuilder {
 public:
  TokenizerBuilder() : parts_(std::make_shared<TokenizerParts>()) {}
  TokenizerParts& parts() { return *parts_; }
  // An added token, after the vocabulary is complete. One that is known already stays as it is.
  Status add_token(AddedToken token);
  // The last step.
  Result<Tokenizer> build();

 private:
  std::shared_ptr<TokenizerParts> parts_;
};

// What tokenizer_config.json adds: tokens that it alone lists, which tokens begin, end and fill up a text, and for some
// classes what stands around it.
Status read_tokenizer_config(const Json& config, TokenizerBuilder* builder);
// Words of a byte-level vocabulary as this name of tokenizer.ggml.pre cuts them, of bytes as visible characters.
Status add_byte_level_words(const std::string& pre, bool space_in_front, TokenizerParts* parts);

}  // namespace reprise::text
