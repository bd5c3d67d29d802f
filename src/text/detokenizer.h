// IncrementalDetokenizer: turns the ids of one sequence into text while they arrive. Each piece holds whole characters
// only, and all pieces together are exactly what Tokenizer::decode makes of all ids: an unfinished character, or a
// space that may still be dropped, waits for the next id or for finish(). It keeps its tokenizer's data alive. One
// sequence, one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "text/tokenizer.h"
#include "text/tokenizer_decoder.h"

namespace reprise::text {

class IncrementalDetokenizer {
 public:
  explicit IncrementalDetokenizer(Tokenizer tokenizer, bool skip_special = true);

  // The text that this id makes certain; often empty.
  Result<std::string> push(int32_t id);
  // What was held back. Afterwards a new sequence may begin.
  Result<std::string> finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  DecoderState state_;
};

}  // namespace reprise::text
