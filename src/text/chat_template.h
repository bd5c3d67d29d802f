// ChatTemplate: a model's chat template, compiled once from its Jinja source. Immutable after construction; any thread
// may render at any time. Helpers find the source and the special tokens in a tokenizer_config.json.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/jinja/template.h"

namespace reprise::text {

struct RenderOptions {
  bool add_generation_prompt = false;
  // More variables for the template ({"enable_thinking": false}); they win over everything else. An object.
  OrderedJson extra = OrderedJson::object();
  // What strftime_now() prints; the local time when absent.
  std::optional<std::tm> now;
  jinja::Limits limits;
};

class ChatTemplate {
 public:
  // `special_tokens`: an object of texts by name ({"bos_token": "<s>", "eos_token": "</s>"}), variables of the
  // template.
  static Result<ChatTemplate> compile(std::string_view source, OrderedJson special_tokens);

  // From the files of a model folder: `tokenizer_config` (an object) and the text of chat_template.jinja, which wins
  // when it is there. With several named templates, "tool_use" serves renders with tools and "default" the others.
  static Result<ChatTemplate> from_config(const OrderedJson& tokenizer_config,
                                          std::optional<std::string_view> jinja_file = std::nullopt);

  // `messages`: a list of objects with "role" and "content" (a string, or a list of parts, as the template takes it).
  // `tools`: a list of JSON schemas, or null for none.
  Result<std::string> render(const OrderedJson& messages, const OrderedJson& tools, const RenderOptions& options) const;

  // The template's text; of several, the default one.
  const std::string& source() const { return source_; }
  // Whether the template walks a content given as a list of parts. When not, pass messages through join_text_parts().
  bool takes_parts() const { return takes_parts_; }
  // How the template takes an earlier call of a tool: with an object of arguments, which most write as JSON themselves;
  // with JSON text, in a message whose content is null (DeepSeek-V3 and R1, which leave out calls beside any content);
  // or not at all (Granite 3).
  enum class PastCalls : uint8_t { Objects, Texts, Never };
  PastCalls past_calls() const { return past_calls_; }

 private:
  ChatTemplate(jinja::Template main, OrderedJson special_tokens);
  bool probe_parts() const;
  bool shows_call(const OrderedJson& content, const OrderedJson& arguments) const;
  void probe();

  jinja::Template main_;
  std::optional<jinja::Template> tool_use_;
  OrderedJson special_tokens_;
  std::string source_;
  bool takes_parts_ = false;
  PastCalls past_calls_ = PastCalls::Objects;
};

// The source of one template of a tokenizer_config.json: its only one, or the named one of several. NotFound when the
// file has none or not that one.
Result<std::string> find_chat_template(const OrderedJson& tokenizer_config, std::string_view name = "default");

// bos_token, eos_token, pad_token, ... of a tokenizer_config.json, each a text there or an object with "content".
OrderedJson find_special_tokens(const OrderedJson& tokenizer_config);

// The messages with every content that is a list of text parts joined to one string, by spaces. Fails for other parts.
Result<OrderedJson> join_text_parts(const OrderedJson& messages);

}  // namespace reprise::text
