// TextStream: the text of one answer while its tokens arrive, cut at its stop strings.
//
// Each piece holds whole characters only, and nothing that may turn out to be the beginning of a stop string. One
// answer, one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace reprise::text {

struct TextStreamOptions {
  std::vector<std::string> stops = {};
  bool include_stop = false;  // the text ends with the stop string that was found
  bool skip_special = true;   // special tokens have no text; without this the end token has, too
};

class TextStream {
 public:
  enum class End : uint8_t {
    None,      // more tokens follow
    EndToken,  // this is the end token, which has no text unless special tokens have
    Cut,       // this is the last token, and has its text
  };

  // A null tokenizer: there is no text.
  TextStream(const Tokenizer* tokenizer, TextStreamOptions options);

  // The text that this token made certain. After stopped() there is no more.
  Result<std::string> push(int32_t token, End end);
  // What was held back, when the answer ends without a last token.
  Result<std::string> finish();
  bool stopped() const { return stops_.hit(); }
  const std::string& stop_string() const { return stops_.matched(); }

 private:
  std::optional<IncrementalDetokenizer> detokenizer_;
  StopStrings stops_;
  bool include_stop_, show_end_;
};

}  // namespace reprise::text
