// TokenizerTables: the vocabulary and the merges of a tokenizer.json, packed. They are nearly all of the file; read
// straight from the text they cost a third of what a Json tree of them costs. Filled and used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer_json.h"

namespace reprise::text {

class TokenizerTables {
 public:
  // Both tables of a "model" that has them.
  static Result<TokenizerTables> from_json(const JsonPlace& model);
  // Parses a tokenizer.json; `rest` becomes the file with both tables empty.
  static Result<TokenizerTables> from_text(std::string_view text, std::string_view source, Json* rest);

  size_t token_count() const { return tokens_.size(); }
  std::string_view token(size_t i) const { return piece(tokens_[i].begin, tokens_[i].size); }
  int64_t id(size_t i) const { return tokens_[i].id; }
  size_t token_bytes() const { return bytes_.size(); }

  size_t merge_count() const { return merges_.size(); }
  std::string_view left(size_t i) const { return piece(merges_[i].begin, merges_[i].left); }
  std::string_view right(size_t i) const { return piece(merges_[i].begin + merges_[i].left, merges_[i].right); }

  void add_token(std::string_view token, int64_t id);
  void add_merge(std::string_view left, std::string_view right);
  // "left right"; lines that begin with #version say nothing.
  Status add_merge_line(std::string_view line);

 private:
  struct Token {
    uint64_t begin;
    uint32_t size;
    int64_t id;
  };
  struct Merge {
    uint64_t begin;
    uint32_t left;
    uint32_t right;
  };

  std::string_view piece(uint64_t begin, uint32_t size) const { return std::string_view(bytes_).substr(begin, size); }

  std::string bytes_;
  std::vector<Token> tokens_;
  std::vector<Merge> merges_;
};

}  // namespace reprise::text
