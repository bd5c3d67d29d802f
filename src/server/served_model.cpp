#include "server/served_model.h"

#include <algorithm>

namespace reprise::server {

size_t longest_token_of(const text::Tokenizer& tokenizer) {
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (const auto bytes = tokenizer.token_bytes(id)) longest = std::max(longest, bytes->size());
    // Special tokens have a text that prompts may hold.
    if (const auto text = tokenizer.id_to_token(id)) longest = std::max(longest, text->size());
  }
  return longest;
}

}  // namespace reprise::server
