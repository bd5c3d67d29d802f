#include "api/text_model.h"

#include <filesystem>

#include "api/default_model.h"
#include "api/gguf_tokenizer.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/gguf_parts.h"
#include "checkpoint/gguf_tokenizer.h"
#include "text/builtin_templates.h"

namespace reprise::api {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Under its own path as well, so that a path and the name give the same answers.
bool is_default_model(const std::string& path) {
  const auto file = default_model_file();
  std::error_code ignored;
  return file && fs::equivalent(path, *file, ignored);
}

Result<std::optional<OrderedJson>> read_optional_json(const fs::path& path) {
  if (!is_there(path)) return std::optional<OrderedJson>();
  ASSIGN_OR_RETURN(const std::string content, read_file(path.string()));
  ASSIGN_OR_RETURN(OrderedJson json, parse_ordered_json(content, path.string()));
  return std::optional<OrderedJson>(std::move(json));
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> gguf_tokenizer_files(const checkpoint::GgufFile& file) {
  ASSIGN_OR_RETURN(const auto metadata, checkpoint::read_gguf_tokenizer(file));
  const auto tokenizer = text::tokenizer_json_from_gguf(for_text(metadata));
  if (!tokenizer) return tokenizer.status().at(file.source());
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const auto& [name, id] : {std::pair{"bos_token", metadata.bos_id}, std::pair{"eos_token", metadata.eos_id},
                                 std::pair{"unk_token", metadata.unk_id}, std::pair{"pad_token", metadata.pad_id}})
    if (id) config[name] = metadata.tokens[static_cast<size_t>(*id)];
  if (!metadata.chat_template.empty()) config["chat_template"] = metadata.chat_template;
  return std::vector<std::pair<std::string, std::string>>{{"tokenizer.json", tokenizer->dump()},
                                                          {"tokenizer_config.json", config.dump(2) + "\n"}};
}

Result<std::string> chat_template_source(const std::string& file_or_name) {
  std::error_code ignored;
  if (!fs::is_regular_file(file_or_name, ignored)) {
    auto built_in = text::builtin_template(file_or_name);
    return built_in ? std::move(built_in) : built_in.status().at("`chat_template`");
  }
  if (file_or_name.ends_with(".json"))
    return invalid("`chat_template` {}: conversations in JSON are not read; allowed: a Jinja file, {}", file_or_name,
                   fmt::format("{}", fmt::join(text::builtin_template_names(), ", ")));
  return read_file(file_or_name);
}

void TextModel::keep_template(Result<text::ChatTemplate> compiled) {
  template_problem_ = compiled.status();
  if (compiled) template_.emplace(std::move(compiled).value());
}

// Folder of a model, or a tokenizer.json with its neighbours. Models without one may have the ranks of tiktoken.
Status TextModel::open_folder(const std::string& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? fs::path(path) / "tokenizer.json" : fs::path(path);
  const fs::path folder = file.parent_path();
  ASSIGN_OR_RETURN(auto config, read_optional_json(folder / "tokenizer_config.json"));
  if (is_there(file)) {
    ASSIGN_OR_RETURN(const std::string content, read_file(file.string()));
    std::optional<Json> plain;
    if (config) plain = Json::parse(config->dump());
    auto made = text::Tokenizer::from_json_text(content, plain ? &*plain : nullptr);
    if (!made) return made.status().at(file.string());
    tokenizer_.emplace(std::move(made).value());
  } else if (const fs::path ranks = folder / "tiktoken.model"; is_there(ranks)) {
    if (!config)
      return invalid("{}: needs a tokenizer_config.json beside it, which says how words are cut", ranks.string());
    ASSIGN_OR_RETURN(const std::string content, read_file(ranks.string()));
    auto made = text::Tokenizer::from_tiktoken(content, Json::parse(config->dump()));
    if (!made) return made.status().at(folder.string());
    tokenizer_.emplace(std::move(made).value());
  }
  const OrderedJson settings = config.value_or(OrderedJson::object());
  special_tokens_ = settings.is_object() ? text::find_special_tokens(settings) : OrderedJson::object();
  if (const fs::path jinja = folder / "chat_template.jinja"; is_there(jinja)) {
    ASSIGN_OR_RETURN(const std::string source, read_file(jinja.string()));
    keep_template(text::ChatTemplate::compile(source, special_tokens_));
  } else if (config) {
    keep_template(text::ChatTemplate::from_config(settings));
  }
  return Status::ok();
}

Status TextModel::open_gguf(const checkpoint::GgufFile& file) {
  auto metadata = checkpoint::read_gguf_tokenizer(file);
  if (!metadata) return metadata.status().code() == Code::NotFound ? Status::ok() : metadata.status();
  auto made = text::Tokenizer::from_gguf(for_text(*metadata));
  if (!made) return made.status().at(file.source());
  tokenizer_.emplace(std::move(*made));
  special_tokens_ = OrderedJson::object();
  for (const auto& [name, id] : {std::pair{"bos_token", metadata->bos_id}, std::pair{"eos_token", metadata->eos_id},
                                 std::pair{"unk_token", metadata->unk_id}, std::pair{"pad_token", metadata->pad_id}})
    if (id) special_tokens_[name] = metadata->tokens[static_cast<size_t>(*id)];
  if (!metadata->chat_template.empty())
    keep_template(text::ChatTemplate::compile(metadata->chat_template, special_tokens_));
  return Status::ok();
}

Result<TextModel> TextModel::open(const ModelSettings& chosen, const std::string& template_file,
                                  const engine::Engine& engine) {
  TextModel m;
  ASSIGN_OR_RETURN(const std::string model, resolve_model_path(chosen.model_path, chosen.hub));
  const bool own = chosen.tokenizer_path.empty();
  m.where_ = own ? model : chosen.tokenizer_path;
  if (!is_there(m.where_)) return error(Code::NotFound, "{}: there is no such file or folder", m.where_);
  const checkpoint::GgufFile* gguf = engine.checkpoint() ? engine.checkpoint()->gguf() : nullptr;
  if (own && gguf) {
    RETURN_IF_ERROR(m.open_gguf(*gguf));
  } else if (m.where_.ends_with(".gguf")) {
    ASSIGN_OR_RETURN(const auto file, checkpoint::open_gguf_model(m.where_));
    RETURN_IF_ERROR(m.open_gguf(file));
  } else {
    RETURN_IF_ERROR(m.open_folder(m.where_));
  }
  if (gguf) {
    ASSIGN_OR_RETURN(m.defaults_, checkpoint::read_generation_config(*gguf));
  } else {
    ASSIGN_OR_RETURN(m.defaults_, checkpoint::read_generation_config(model));
  }
  if (is_default_model(model)) {
    m.defaults_.temperature = m.defaults_.temperature.value_or(kDefaultModelTemperature);
    m.defaults_.top_p = m.defaults_.top_p.value_or(kDefaultModelTopP);
  }
  if (!template_file.empty()) {
    ASSIGN_OR_RETURN(const std::string source, chat_template_source(template_file));
    auto compiled = text::ChatTemplate::compile(source, m.special_tokens_);
    if (!compiled) return compiled.status().at(template_file);
    m.keep_template(std::move(compiled));
  }
  if (!own && !m.tokenizer_) RETURN_IF_ERROR(m.require_tokenizer());
  RETURN_IF_ERROR(m.check_vocabulary(engine.config().vocab_size));
  return m;
}

Status TextModel::check_vocabulary(int64_t rows) const {
  if (!tokenizer_ || tokenizer_->vocab_size() <= rows) return Status::ok();
  int64_t special = 0;
  for (int64_t id = rows; id < tokenizer_->vocab_size(); ++id) {
    if (tokenizer_->is_special(id))
      ++special;
    else if (tokenizer_->id_to_token(id))
      return invalid("{}: the tokenizer has {} tokens, but the model's vocab_size is {}; they are not of one model",
                     where_, tokenizer_->vocab_size(), rows);
  }
  if (special > 0)
    log::notice("{} special tokens of the tokenizer have no row in the model (vocab_size {}); prompts with them fail",
                special, rows);
  return Status::ok();
}

Status TextModel::require_tokenizer() const {
  if (tokenizer_) return Status::ok();
  return error(Code::NotFound,
               "{}: there is no tokenizer (tokenizer.json, or GGUF metadata); give `tokenizer_path`, or the prompt as "
               "token ids",
               where_);
}

Result<std::vector<int32_t>> TextModel::encode(std::string_view text) const {
  RETURN_IF_ERROR(require_tokenizer());
  return tokenizer_->encode(text);
}

Result<std::string> TextModel::render_chat(const OrderedJson& messages) const {
  RETURN_IF_ERROR(require_tokenizer());
  if (!template_) {
    if (!template_problem_.is_ok() && template_problem_.code() != Code::NotFound) return template_problem_.at(where_);
    return error(Code::NotFound, "{}: the model has no chat template; give one with `chat_template` FILE", where_);
  }
  text::RenderOptions options;
  options.add_generation_prompt = true;
  return template_->render(messages, nullptr, options);
}

Result<std::vector<int32_t>> TextModel::encode_rendered(std::string_view prompt) const {
  // The template has written the special tokens itself.
  return tokenizer_->encode(prompt, {.add_special_tokens = false});
}

Result<std::vector<int32_t>> TextModel::encode_chat(const OrderedJson& messages) const {
  ASSIGN_OR_RETURN(const std::string prompt, render_chat(messages));
  return encode_rendered(prompt);
}

}  // namespace reprise::api
