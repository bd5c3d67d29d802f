#include "server/token_text.h"

namespace reprise::server {

using engine::FinishReason;

TokenText::TokenText(const ServedModel& model, const GenerateCall& call)
    : stops_(call.sampling.stop), include_stop_(call.include_stop), show_end_(!call.skip_special_tokens) {
  if (model.tokenizer) detokenizer_.emplace(*model.tokenizer, call.skip_special_tokens);
}

Result<std::string> TokenText::push(const engine::SampledToken& token, FinishReason finish) {
  if (!detokenizer_ || stops_.hit()) return std::string();
  std::string piece;
  if (finish != FinishReason::Stop || show_end_) {  // an end token has no text
    ASSIGN_OR_RETURN(piece, detokenizer_->push(token.token));
  }
  std::string certain = stops_.push(piece);
  if (finish != FinishReason::None && !stops_.hit()) {
    ASSIGN_OR_RETURN(const std::string rest, this->finish());
    certain += rest;
  }
  if (stops_.hit() && include_stop_) certain += stops_.matched();
  return certain;
}

Result<std::string> TokenText::finish() {
  if (!detokenizer_ || stops_.hit()) return std::string();
  ASSIGN_OR_RETURN(const std::string rest, detokenizer_->finish());
  std::string certain = stops_.push(rest);
  certain += stops_.finish();
  return certain;
}

}  // namespace reprise::server
