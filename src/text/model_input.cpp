#include "text/model_input.h"

namespace reprise::text {
namespace {

constexpr std::string_view kBefore =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
constexpr std::string_view kBehind = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

Result<std::vector<int32_t>> judged_prompt(const Tokenizer& tokenizer, std::string_view text, int64_t most) {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.encode(kBefore, {.add_special_tokens = false}));
  ASSIGN_OR_RETURN(const std::vector<int32_t> behind, tokenizer.encode(kBehind, {.add_special_tokens = false}));
  ASSIGN_OR_RETURN(std::vector<int32_t> body,
                   tokenizer.encode(text, {.add_special_tokens = false, .parse_special = false}));
  const int64_t room = most - static_cast<int64_t>(ids.size() + behind.size());
  if (room < 1) return invalid("a pair may have {} tokens, and the prompt around it takes more", most);
  if (static_cast<int64_t>(body.size()) > room) body.resize(static_cast<size_t>(room));
  ids.insert(ids.end(), body.begin(), body.end());
  ids.insert(ids.end(), behind.begin(), behind.end());
  return ids;
}

}  // namespace

Result<EncodedPair> encode_text(const Tokenizer& tokenizer, std::string_view text, int64_t most, bool truncate,
                                bool at_end) {
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.encode_within(text, truncate ? most : INT64_MAX, at_end));
  if (ids.empty()) return invalid("the text has no tokens");
  const size_t size = ids.size();
  return EncodedPair{std::move(ids), size};
}

Result<EncodedPair> encode_query(const Tokenizer& tokenizer, bool judged, std::string_view instruction,
                                 std::string_view query, std::string_view document, int64_t most) {
  if (!judged) return tokenizer.encode_pair(query, document, most);
  const std::string text = fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}",
                                       instruction.empty() ? kUsualInstruction : instruction, query, document);
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, judged_prompt(tokenizer, text, most));
  const size_t size = ids.size();
  return EncodedPair{std::move(ids), size};
}

}  // namespace reprise::text
