// for_text: the tokenizer metadata of a GGUF file as the tokenizer takes them. The checkpoint reads the file and knows
// no tokenizer, the tokenizer knows no file; this is the one place that knows both. In the header, so that tests of
// tokenizers need no engine. Pure function; any thread.
#pragma once

#include <cstdint>

#include "checkpoint/gguf_tokenizer.h"
#include "text/tokenizer.h"

namespace reprise::api {

inline text::GgufTokenizer for_text(const checkpoint::GgufTokenizer& read) {
  text::GgufTokenizer gguf;
  gguf.model = read.model;
  gguf.pre = read.pre;
  gguf.tokens = read.tokens;
  gguf.merges = read.merges;
  gguf.scores = read.scores;
  for (const checkpoint::GgufTokenKind kind : read.kinds) gguf.token_types.push_back(static_cast<int32_t>(kind));
  gguf.bos = read.bos_id.value_or(-1);
  gguf.eos = read.eos_id.value_or(-1);
  gguf.unk = read.unk_id.value_or(-1);
  gguf.pad = read.pad_id.value_or(-1);
  gguf.sep = read.sep_id.value_or(-1);
  gguf.mask = read.mask_id.value_or(-1);
  gguf.charsmap = read.charsmap;
  gguf.add_bos = read.add_bos;
  gguf.add_eos = read.add_eos;
  gguf.add_sep = read.add_sep;
  gguf.add_space_prefix = read.add_space_prefix;
  gguf.remove_extra_whitespaces = read.remove_extra_whitespaces;
  return gguf;
}

}  // namespace reprise::api
