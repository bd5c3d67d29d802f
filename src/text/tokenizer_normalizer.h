// Normalizer: the "normalizer" of a tokenizer.json, a list of steps that rewrite a stretch of text before it is cut
// into words. Immutable; any thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_charsmap.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_pattern.h"
#include "text/unicode.h"

namespace reprise::text {

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  static Result<Normalizer> from_json(const JsonPlace& place);

  void add_form(NormalForm form);
  void add_prepend(std::string text);  // not in front of an empty text
  void add_replace(TextPattern pattern, std::string content);
  void add_charsmap(Charsmap map);
  // As BERT reads text: without controls, Chinese characters apart, and where asked for without accents, in lower case.
  void add_bert(bool lowercase, bool without_accents);

  bool changes_nothing() const { return steps_.empty(); }
  Result<std::string> apply(std::string_view text) const;

 private:
  enum class Kind : uint8_t { Form, Prepend, Replace, Strip, Lowercase, Controls, Ideographs, Accents, Charsmap };
  struct Step {
    Kind kind;
    NormalForm form = NormalForm::Nfc;
    std::string content;
    std::vector<TextPattern> pattern = {};  // one for Replace
    bool left = false;                      // for Strip
    bool right = false;
    std::vector<text::Charsmap> charsmap = {};  // likewise
  };

  Status add_json(const JsonPlace& place);
  Status add_bert(const JsonPlace& place);
  void add_steps(std::initializer_list<std::pair<bool, Kind>> steps);  // those with true
  Status add_charsmap(const JsonPlace& place);

  std::vector<Step> steps_;
};

}  // namespace reprise::text
