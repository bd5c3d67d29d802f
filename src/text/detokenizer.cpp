#include "text/detokenizer.h"

#include "text/tokenizer_parts.h"

namespace reprise::text {

IncrementalDetokenizer::IncrementalDetokenizer(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), state_(tokenizer_.parts_->decoder.start()) {}

Result<std::string> IncrementalDetokenizer::push(int32_t id) {
  const TokenizerParts& p = *tokenizer_.parts_;
  std::string piece;
  const std::optional<std::string_view> token = p.token(id);
  if (!token || (skip_special_ && p.added.is_special(id))) return piece;
  RETURN_IF_ERROR(p.decoder.feed(&state_, *token, &piece));
  return piece;
}

Result<std::string> IncrementalDetokenizer::finish() {
  const TokenizerParts& p = *tokenizer_.parts_;
  std::string piece;
  const Status status = p.decoder.finish(&state_, &piece);
  state_ = p.decoder.start();
  if (!status) return status;
  return piece;
}

}  // namespace reprise::text
