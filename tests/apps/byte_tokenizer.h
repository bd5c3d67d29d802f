// byte_tokenizer: tokenizer.json of a vocabulary whose 256 tokens are the single bytes, for models of random weights
// that must read and write text.
#pragma once

#include <string>
#include <utility>

#include "base/json.h"

namespace reprise::apps {

inline Json byte_tokenizer(Json added_tokens = Json::array()) {
  Json vocab = Json::object();
  // The visible characters that stand for the bytes, as every byte-level tokenizer has them.
  int next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const int c = visible ? b : next++;
    std::string text;
    if (c < 128) {
      text += static_cast<char>(c);
    } else {
      text += static_cast<char>(0xc0 | (c >> 6));
      text += static_cast<char>(0x80 | (c & 63));
    }
    vocab[text] = b;
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return Json{{"version", "1.0"},
              {"added_tokens", std::move(added_tokens)},
              {"normalizer", nullptr},
              {"pre_tokenizer", byte_level},
              {"post_processor", nullptr},
              {"decoder", byte_level},
              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
}

}  // namespace reprise::apps
