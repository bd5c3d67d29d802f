// BpeModel: byte-pair encoding of one word by ranked merges, as tokenizer.json's model "BPE" means it. It starts from
// the word's characters and always joins the neighbours whose merge has the lowest rank, the leftmost first. Immutable
// after construction; any thread. A BpeScratch holds one call's working memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_vocabulary.h"

namespace reprise::text {

struct BpeOptions {
  std::string subword_prefix;  // before every character but the first of a word
  std::string word_suffix;     // behind the last character of a word
  std::string unk_token;       // "" when there is none: unknown characters vanish
  bool fuse_unk = false;       // neighbouring unknown characters make one token
  bool byte_fallback = false;  // unknown characters become tokens <0x00> to <0xFF>
  bool ignore_merges = false;  // a word that is a token is not cut
};

struct BpeScratch {
  struct Symbol {
    int32_t id;  // -1 once joined to the left
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t left;  // symbol
    int32_t made;  // id
  };
  std::vector<int32_t> ids;
  std::vector<uint32_t> ranks;
  std::vector<int32_t> made;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::string buffer;
};

class BpeModel {
 public:
  explicit BpeModel(BpeOptions options = {}) : options_(std::move(options)) {}

  // Merge number `rank` joins `left` and `right`; all three tokens must be in the vocabulary. A pair given twice keeps
  // the later rank.
  Status add_merge(const Vocabulary& vocabulary, std::string_view left, std::string_view right, uint32_t rank);
  void reserve(size_t merges);
  // To be called once, after the last merge.
  void finish(const Vocabulary& vocabulary);

  Status encode(const Vocabulary& vocabulary, std::string_view word, BpeScratch* scratch,
                std::vector<int32_t>* out) const;

 private:
  struct Merge {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0;
    int32_t made = -1;
  };

  static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t pair) const;
  void grow(size_t slots);
  const Merge* find_merge(int32_t left, int32_t right) const;

  Status start(const Vocabulary& vocabulary, std::string_view word, BpeScratch* scratch) const;
  void merge_short(BpeScratch* scratch) const;
  void merge_long(BpeScratch* scratch) const;

  BpeOptions options_;
  std::vector<Merge> merges_;  // open addressing; a power of two
  size_t used_ = 0;
  std::string merged_;  // reused by add_merge
  int32_t unk_id_ = -1;
  std::vector<int32_t> small_;     // ids of the characters below U+0200, -1 where there is none
  std::vector<int32_t> byte_ids_;  // ids of <0x00> to <0xFF>
};

}  // namespace reprise::text
