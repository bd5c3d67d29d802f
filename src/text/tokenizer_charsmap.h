// Charsmap: the "precompiled_charsmap" of a SentencePiece model, by which it rewrites characters (NFKC with changes of
// its own). A double-array trie of what is replaced, and all replacements, each with a zero behind it. Immutable; any
// thread.
//
// A text is taken cluster by cluster, as people see characters. A cluster of at most five bytes that begins with an
// entry is replaced as a whole by that of the shortest one; of others each code point is, where it begins with one. So
// HF tokenizers does it, and so models were trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::text {

class Charsmap {
 public:
  // The bytes of the map, as the file has them in base64.
  static Result<Charsmap> read(std::string_view bytes);

  // Text of valid UTF-8; an error where more than `most` bytes come out.
  Result<std::string> apply(std::string_view text, size_t most) const;

 private:
  std::optional<std::string_view> replacement(std::string_view part) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace reprise::text
