// WordPieceModel: cuts one word into the longest tokens that there are, from the left; all but the first carry a
// prefix. A word of which a part is in no token, or with too many characters, is the unknown token as a whole. As
// tokenizer.json's model "WordPiece" means it. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_vocabulary.h"

namespace reprise::text {

struct WordPieceOptions {
  std::string prefix = "##";
  int32_t unk_id = -1;
  int64_t max_characters = 100;
};

class WordPieceModel {
 public:
  WordPieceModel(WordPieceOptions options, const Vocabulary& vocabulary);

  void encode(const Vocabulary& vocabulary, std::string_view word, std::vector<int32_t>* out) const;

 private:
  WordPieceOptions options_;
  size_t longest_ = 0;  // token, in bytes
};

}  // namespace reprise::text
