// ScoreModel: byte-pair encoding by scores, as SentencePiece does it and GGUF's "llama" vocabularies store it: of all
// neighbours whose concatenation is a token, the one with the highest score is joined first, the leftmost of equals.
// What is left and is no token becomes the byte tokens <0x00> to <0xFF>. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_vocabulary.h"

namespace reprise::text {

class ScoreModel {
 public:
  // `scores` by id. Tokens with `mergeable` 0 (control, unknown, bytes) never arise from text. `unk_id` (-1: none) is
  // used where the vocabulary lacks byte tokens.
  static Result<ScoreModel> create(const Vocabulary& vocabulary, std::vector<float> scores,
                                   std::vector<uint8_t> mergeable, int32_t unk_id);

  void encode(const Vocabulary& vocabulary, std::string_view text, std::vector<int32_t>* out) const;

 private:
  int32_t find(const Vocabulary& vocabulary, std::string_view text) const;

  std::vector<float> scores_;
  std::vector<uint8_t> mergeable_;
  std::vector<int32_t> byte_ids_;
  int32_t unk_id_ = -1;
};

}  // namespace reprise::text
