// Vocabulary: which token has which id, in both directions. Owns the bytes of all tokens in one block. Filled once
// while a tokenizer is built, then immutable and readable from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace reprise::text {

class Vocabulary {
 public:
  // The largest published vocabularies have about 262,000 tokens; this bounds the tables a hostile id could ask for.
  static constexpr int64_t kMaxId = (1 << 22) - 1;

  void reserve(size_t tokens, size_t bytes);

  // An id has one token. A token that already has an id keeps that one for find(); token(id) knows both.
  Status add(std::string_view token, int64_t id);

  int32_t find(std::string_view token) const;  // -1 when there is none
  bool has(int64_t id) const { return id >= 0 && id < size() && spans_[static_cast<size_t>(id)].offset != kNone; }
  std::string_view token(int32_t id) const;  // has(id) must hold
  size_t distinct() const { return used_; }  // tokens, each counted once
  // One more than the highest id.
  int32_t size() const { return static_cast<int32_t>(spans_.size()); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Span {
    uint32_t offset = kNone;
    uint32_t size = 0;
  };

  size_t slot_of(std::string_view token) const;
  void grow(size_t slots);

  std::string bytes_;
  std::vector<Span> spans_;     // by id
  std::vector<int32_t> slots_;  // open addressing, -1 is free; a power of two
  size_t used_ = 0;
};

}  // namespace reprise::text
