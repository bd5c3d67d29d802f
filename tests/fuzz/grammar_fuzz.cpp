// A JSON schema or else a regular expression, then a text for it, after a NUL byte. The text is taken byte by byte, and
// then a way is chosen by the text among what the masks allow: every token that a mask allows must be accepted, and no
// other.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/token_masks.h"

using namespace reprise::text::grammar;

namespace {

TokenTable::Shared make_tokens() {
  std::vector<std::string> tokens{"<end>"};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"ab", "abc", "{\"", "\":", "\"}", "\xC3", "\xA9", "12", "true", "\\u00", "\xF0\x9F"})
    tokens.emplace_back(word);
  return TokenTable::from_bytes(std::move(tokens), std::vector<int32_t>{0}).value();
}

GrammarLimits small_limits() {
  GrammarLimits limits;
  limits.max_nodes = 5000;
  limits.max_schema_values = 2000;
  limits.max_depth = 20;
  limits.max_states = 500;
  limits.max_places = 1 << 14;
  limits.max_visits = 1 << 16;
  limits.max_mask_bytes = 1000;
  return limits;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TokenTable::Shared tokens = make_tokens();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find('\0');
  const std::string_view source = input.substr(0, split);
  const std::string_view text = split == std::string_view::npos ? "" : input.substr(split + 1);

  reprise::Result<Grammar::Shared> grammar = Grammar::from_regex(source, small_limits());
  if (const auto schema = reprise::parse_ordered_json(source, "schema"))
    grammar = Grammar::from_json_schema(*schema, small_limits());
  if (!grammar) return 0;
  const auto whole = (*grammar)->matches(text);

  const auto masks = std::make_shared<TokenMasks>(*grammar, tokens);
  auto matcher = GrammarMatcher::create(masks);
  if (!matcher) return 0;
  bool alive = true;
  for (const char c : text) alive = alive && matcher->accept(1 + static_cast<uint8_t>(c)).is_ok();
  if (whole && *whole && alive && !matcher->can_end()) std::abort();
  if (whole && !*whole && alive && matcher->can_end()) std::abort();

  for (size_t step = 0; step < std::min<size_t>(text.size(), 16); ++step) {
    const auto mask = matcher->allowed();
    if (!mask) return 0;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < static_cast<int32_t>(tokens->size()); ++id) {
      GrammarMatcher copy = *matcher;
      const reprise::Status accepted = copy.accept(id);
      if (accepted.code() == reprise::Code::Unsupported) return 0;
      if (accepted.is_ok() != mask_has(**mask, id)) std::abort();
      if (id > 0 && accepted.is_ok()) allowed.push_back(id);
    }
    if (allowed.empty()) return 0;
    if (!matcher->accept(allowed[static_cast<uint8_t>(text[step]) % allowed.size()]).is_ok()) return 0;
  }
  return 0;
}
