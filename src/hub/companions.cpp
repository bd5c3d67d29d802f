#include "hub/companions.h"

#include <algorithm>
#include <array>

namespace reprise::hub {
namespace {

constexpr std::array<std::string_view, 16> kNames{"generation_config.json",
                                                  "tokenizer.json",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "tokenizer.model",
                                                  "tiktoken.model",
                                                  "chat_template.jinja",
                                                  "chat_template.json",
                                                  "preprocessor_config.json",
                                                  "video_preprocessor_config.json",
                                                  "modules.json",
                                                  "sentence_bert_config.json",
                                                  "config_sentence_transformers.json"};

// A folder of sentence-transformers that modules.json names: "1_Pooling/config.json", "1_LogitScore/config.json".
bool is_module_config(std::string_view path) {
  const size_t digits = std::min(path.find_first_not_of("0123456789"), path.size()), slash = path.find('/');
  return digits > 0 && path.substr(digits).starts_with('_') && slash != path.npos &&
         path.substr(slash + 1) == "config.json";
}

}  // namespace

bool is_companion(std::string_view path) {
  if (std::find(kNames.begin(), kNames.end(), path) != kNames.end()) return true;
  constexpr std::string_view kTemplates = "additional_chat_templates/";
  if (path.starts_with(kTemplates)) return path.ends_with(".jinja") && path.find('/', kTemplates.size()) == path.npos;
  return is_module_config(path);
}

}  // namespace reprise::hub
