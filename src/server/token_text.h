// TokenText: the text of one answer while its tokens arrive, cut at its stop strings. One answer, one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "server/generate_call.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace reprise::server {

class TokenText {
 public:
  TokenText(const ServedModel& model, const GenerateCall& call);

  // The text that this token made certain. After stopped() there is no more.
  Result<std::string> push(const engine::SampledToken& token, engine::FinishReason finish);
  // What was held back, when the answer ends without a last token.
  Result<std::string> finish();
  bool stopped() const { return stops_.hit(); }
  const std::string& stop_string() const { return stops_.matched(); }

 private:
  std::optional<text::IncrementalDetokenizer> detokenizer_;  // without a tokenizer there is no text
  text::StopStrings stops_;
  bool include_stop_, show_end_;
};

}  // namespace reprise::server
