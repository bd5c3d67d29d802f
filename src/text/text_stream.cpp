#include "text/text_stream.h"

namespace reprise::text {

TextStream::TextStream(const Tokenizer* tokenizer, TextStreamOptions options)
    : stops_(std::move(options.stops)), include_stop_(options.include_stop), show_end_(!options.skip_special) {
  if (tokenizer) detokenizer_.emplace(*tokenizer, options.skip_special);
}

Result<std::string> TextStream::push(int32_t token, End end) {
  if (!detokenizer_ || stops_.hit()) return std::string();
  std::string piece;
  if (end != End::EndToken || show_end_) {
    ASSIGN_OR_RETURN(piece, detokenizer_->push(token));
  }
  std::string certain = stops_.push(piece);
  if (end != End::None && !stops_.hit()) {
    ASSIGN_OR_RETURN(const std::string rest, finish());
    certain += rest;
  }
  if (stops_.hit() && include_stop_) certain += stops_.matched();
  return certain;
}

Result<std::string> TextStream::finish() {
  if (!detokenizer_ || stops_.hit()) return std::string();
  ASSIGN_OR_RETURN(const std::string rest, detokenizer_->finish());
  std::string certain = stops_.push(rest);
  certain += stops_.finish();
  return certain;
}

}  // namespace reprise::text
