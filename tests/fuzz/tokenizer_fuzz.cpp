// tokenizer.json, or ranks of tiktoken behind a line that says so, then a text for it. The input is split at its first
// NUL byte; what encoding gives is decoded again, at once and id by id, and the two must agree.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

using reprise::text::IncrementalDetokenizer;
using reprise::text::Tokenizer;

namespace {

const reprise::Json& config_of_ranks() {
  static const reprise::Json config{{"tokenizer_class", "TikTokenTokenizer"}};
  return config;
}

void round_trip(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  const auto ids = tokenizer.encode(text, {.add_special_tokens = true, .parse_special = parse_special});
  if (!ids) return;
  for (const bool skip_special : {false, true}) {
    const auto whole = tokenizer.decode(*ids, skip_special);
    if (!whole) continue;
    IncrementalDetokenizer stream(tokenizer, skip_special);
    std::string pieces;
    for (int32_t id : *ids) pieces += stream.push(id).value();
    pieces += stream.finish().value();
    if (pieces != *whole) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find('\0');
  const std::string_view text = split == std::string_view::npos ? "" : input.substr(split + 1);
  const std::string_view file = input.substr(0, split);
  constexpr std::string_view kRanks = "tiktoken\n";
  const auto tokenizer = file.starts_with(kRanks)
                             ? Tokenizer::from_tiktoken(file.substr(kRanks.size()), config_of_ranks())
                             : Tokenizer::from_json_text(file);
  if (!tokenizer) return 0;
  round_trip(*tokenizer, text, true);
  round_trip(*tokenizer, text, false);
  return 0;
}
