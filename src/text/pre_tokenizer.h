// PreTokenizer: the "pre_tokenizer" of a tokenizer.json, a list of steps that cut a stretch of text into words and may
// rewrite them (bytes to visible characters, spaces to U+2581). A word is what the model then encodes by itself.
// Immutable; any thread. A WordList holds one call's words and is reused between stretches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_pattern.h"

namespace reprise::text {

struct WordList {
  struct Word {
    uint32_t begin;
    uint32_t end;
    bool at_start;  // the text itself begins with this word
  };
  std::string text;
  std::vector<Word> words;
  // Working memory of the steps.
  std::string old_text;
  std::vector<Word> old_words;

  std::string_view view(const Word& w) const { return std::string_view(text).substr(w.begin, w.end - w.begin); }
};

// The visible characters (as UTF-8) that stand for bytes in byte-level vocabularies, and back: the byte, or -1.
std::string_view visible_byte(uint8_t byte);
int byte_of_visible(char32_t c);

class PreTokenizer {
 public:
  // What becomes of the matches of a pattern.
  enum class Behavior : uint8_t { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
  enum class Prepend : uint8_t { Always, First, Never };

  PreTokenizer() = default;  // the whole stretch is one word
  static Result<PreTokenizer> from_json(const JsonPlace& place);

  void add_split(TextPattern pattern, Behavior behavior, bool invert);
  void add_byte_level(bool add_prefix_space, bool use_regex);
  void add_digits(bool individual);
  void add_whitespace_split();
  void add_bert();  // words end at white space, and each punctuation mark is one
  void add_metaspace(std::string replacement, Prepend prepend, bool split);

  // Every word, rewritten by the last step, goes to `out`. `at_start` says that the text begins with this stretch.
  Status apply(std::string_view stretch, bool at_start, WordList* out) const;

 private:
  enum class Kind : uint8_t { Split, Prefix, Bytes, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace };
  struct Piece {
    size_t begin;
    size_t end;
    bool is_match;
  };
  struct Step {
    Kind kind;
    Behavior behavior = Behavior::Isolated;
    std::vector<TextPattern> pattern = {};  // one for Split
    bool invert = false;
    std::string replacement = {};  // for Metaspace
    Prepend prepend = Prepend::Always;
    bool split = true;
  };

  Status add_json(const JsonPlace& place);
  static Status find_pieces(const Step& step, std::string_view word, std::vector<Piece>* pieces);
  static void keep_pieces(std::vector<Piece>* pieces, const Step& step, const WordList::Word& word, WordList* out);
  static void rewrite(const Step& step, WordList* list);

  std::vector<Step> steps_;
};

}  // namespace reprise::text
