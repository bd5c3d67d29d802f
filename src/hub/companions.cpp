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

// In a folder of sentence-transformers that modules.json names: "1_Pooling/config.json", and of dense layers behind the
// pooling their weights, "2_Dense/model.safetensors".
bool is_of_module(std::string_view path) {
  const size_t digits = std::min(path.find_first_not_of("0123456789"), path.size()), slash = path.find('/');
  if (digits == 0 || !path.substr(digits).starts_with('_') || slash == path.npos) return false;
  const std::string_view name = path.substr(slash + 1);
  return name == "config.json" || name == "model.safetensors";
}

}  // namespace

bool is_companion(std::string_view path) {
  if (std::find(kNames.begin(), kNames.end(), path) != kNames.end()) return true;
  constexpr std::string_view kTemplates = "additional_chat_templates/";
  if (path.starts_with(kTemplates)) return path.ends_with(".jinja") && path.find('/', kTemplates.size()) == path.npos;
  return is_of_module(path);
}

}  // namespace reprise::hub
