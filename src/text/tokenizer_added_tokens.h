// AddedTokens: the tokens that are found in the text as they stand, before any model sees it: "<|im_start|>" and the
// like. Of several that match at one place the longest wins. Filled while a tokenizer is built, then immutable and
// readable from any thread.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_normalizer.h"

namespace reprise::text {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;  // only where no word touches it
  bool lstrip = false;       // swallows the white space to its left
  bool rstrip = false;       // and to its right
  bool normalized = false;   // looked for in the normalized text
  bool special = false;      // left out of text shown to people
};

class AddedTokens {
 public:
  // A stretch of text: one added token (id >= 0), or text between them.
  struct Stretch {
    int32_t id;
    size_t begin;
    size_t end;
  };
  enum class Where : uint8_t { Raw, Normalized };

  void add(AddedToken token);
  // To be called once, after the last token.
  Status finish(const Normalizer& normalizer);

  bool is_special(int32_t id) const;
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }
  // Cuts valid UTF-8 into stretches. With `parse_special` false the special tokens count as plain text.
  void cut(std::string_view text, Where where, bool parse_special, std::vector<Stretch>* out) const;

 private:
  // A trie over bytes.
  struct Trie {
    std::unordered_map<uint64_t, uint32_t> edges;  // (node, byte) to node
    std::vector<int32_t> ends{-1};                 // by node: index into tokens_, or -1
    std::bitset<256> first;

    void insert(std::string_view text, int32_t index);
    // The longest match at `at`: its index and, in `*end`, where it ends; -1 when there is none.
    int32_t longest(std::string_view text, size_t at, size_t* end) const;
  };

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  Trie raw_;
  Trie normalized_;
};

}  // namespace reprise::text
