// UnigramModel: the "Unigram" model of a tokenizer.json, and of GGUF files, as SentencePiece trains it for many
// languages. A word becomes
// those tokens whose scores, logarithms of probabilities, have the largest sum (Viterbi). A character that no token
// begins with is unknown and costs more than any token; neighbours that are unknown are one token. Immutable after
// construction; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_vocabulary.h"

namespace reprise::text {

class UnigramModel {
 public:
  // `scores` by id, one for each token. `byte_fallback`: what is unknown becomes the tokens <0x00> to <0xFF>, where the
  // vocabulary has all that it takes. `pieces` by id: whether text becomes the token; empty: all tokens are pieces.
  static Result<UnigramModel> create(const Vocabulary& vocabulary, std::vector<double> scores, int32_t unk_id,
                                     bool byte_fallback, std::vector<uint8_t> pieces = {});

  void encode(const Vocabulary& vocabulary, std::string_view word, std::vector<int32_t>* out) const;

 private:
  int32_t find(const Vocabulary& vocabulary, std::string_view piece) const;  // -1: there is none
  void append_piece(const Vocabulary& vocabulary, std::string_view piece, std::vector<int32_t>* out) const;

  std::vector<double> scores_;
  std::vector<uint8_t> pieces_;  // empty: all tokens
  double unknown_score_ = 0;
  int32_t unk_id_ = 0;
  size_t longest_ = 0;             // token, in bytes
  std::vector<int32_t> byte_ids_;  // empty without fallback; -1: no such token
};

}  // namespace reprise::text
