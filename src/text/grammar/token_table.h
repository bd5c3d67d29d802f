// TokenTable: the bytes that every token id adds to a text, as a tree in one flat list, so that a mask needs one walk
// over common beginnings. Special tokens and ids without a token add nothing and are never allowed, except the end
// tokens where a text may end. Where decoding drops the space in front of a whole text (SentencePiece), the table still
// has it: a grammar that begins with anything else wants the token without it. Built once per tokenizer, immutable,
// shared; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace reprise::text::grammar {

class TokenTable {
 public:
  using Shared = std::shared_ptr<const TokenTable>;

  // A node of the tree; children follow their parent. Its bytes are those of the nodes on the way to it.
  struct Node {
    uint32_t skip;  // index of the first node that does not begin with these bytes
    int32_t token;  // an id with exactly these bytes, or -1; same_bytes() has the others
    uint16_t depth;
    uint8_t byte;
  };

  // `size` is how many ids a mask covers: the width of the logits, at least the vocabulary (0 means just that).
  static Result<Shared> from_tokenizer(const Tokenizer& tokenizer, std::span<const int32_t> end_tokens,
                                       size_t size = 0);
  // By id; an empty text is a token that is never allowed.
  static Result<Shared> from_bytes(std::vector<std::string> tokens, std::span<const int32_t> end_tokens);

  size_t size() const { return tokens_.size(); }
  std::string_view bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool is_end(int32_t id) const;

  const std::vector<Node>& nodes() const { return nodes_; }
  size_t max_depth() const { return max_depth_; }
  // The next id with the same bytes, or -1.
  int32_t same_bytes(int32_t id) const { return same_bytes_[static_cast<size_t>(id)]; }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> end_tokens_;
  std::vector<Node> nodes_;
  std::vector<int32_t> same_bytes_;
  size_t max_depth_ = 0;
};

}  // namespace reprise::text::grammar
