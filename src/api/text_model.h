// TextModel: the text side of a model: tokenizer, chat template and the publisher's sampling defaults, from a Hugging
// Face folder or a GGUF file. A model without a tokenizer is one for token ids only. Immutable once opened; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/model_settings.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/generation_config.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace reprise::api {

// tokenizer.json and tokenizer_config.json with what a GGUF file's metadata says: file names and contents. NotFound
// without a tokenizer, Unsupported when those files cannot hold its kind.
Result<std::vector<std::pair<std::string, std::string>>> gguf_tokenizer_files(const checkpoint::GgufFile& file);

// What `chat_template` says: the text of a Jinja file, or of a built-in template by its name.
Result<std::string> chat_template_source(const std::string& file_or_name);

class TextModel {
 public:
  // `template_file` (or a built-in template's name) replaces the model's own template, "" keeps it. A tokenizer with
  // words that the model has no rows for is an error; special tokens beyond them (a padding token added later) are a
  // notice.
  static Result<TextModel> open(const ModelSettings& chosen, const std::string& template_file,
                                const engine::Engine& engine);

  const text::Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const checkpoint::GenerationDefaults& defaults() const { return defaults_; }
  const std::optional<text::ChatTemplate>& chat_template() const { return template_; }
  const Status& template_problem() const { return template_problem_; }  // why there is none, when it is broken

  // Text as it stands, with the special tokens that the tokenizer adds.
  Result<std::vector<int32_t>> encode(std::string_view text) const;
  // [{"role": "user", "content": "..."}, ...] through the chat template, ready for the answer.
  Result<std::vector<int32_t>> encode_chat(const OrderedJson& messages) const;
  // Its two halves.
  Result<std::string> render_chat(const OrderedJson& messages) const;
  Result<std::vector<int32_t>> encode_rendered(std::string_view prompt) const;

 private:
  Status open_folder(const std::string& folder);
  Status open_gguf(const checkpoint::GgufFile& file);
  void keep_template(Result<text::ChatTemplate> compiled);
  Status require_tokenizer() const;
  Status check_vocabulary(int64_t rows) const;

  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  Status template_problem_;  // told only to those who need the template
  OrderedJson special_tokens_;
  checkpoint::GenerationDefaults defaults_;
  std::string where_;  // what was searched, for errors
};

}  // namespace reprise::api
