#include "text/chat_template.h"

#include <vector>

namespace reprise::text {
namespace {

std::tm local_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  return now;
}

// The interpreter says "template line N: ..."; here it is known which template.
Status named(const Status& status) { return Status(status.code(), "chat " + status.message()); }

Result<jinja::Template> compile_source(std::string_view source) {
  auto compiled = jinja::Template::compile(source);
  if (!compiled) return named(compiled.status());
  return compiled;
}

}  // namespace

ChatTemplate::ChatTemplate(jinja::Template main, OrderedJson special_tokens)
    : main_(std::move(main)), special_tokens_(std::move(special_tokens)) {}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, OrderedJson special_tokens) {
  if (special_tokens.is_null()) special_tokens = OrderedJson::object();
  if (!special_tokens.is_object()) return invalid("chat template: the special tokens must be an object");
  ASSIGN_OR_RETURN(jinja::Template main, compile_source(source));
  ChatTemplate out(std::move(main), std::move(special_tokens));
  out.source_ = source;
  out.probe();
  return out;
}

Result<ChatTemplate> ChatTemplate::from_config(const OrderedJson& tokenizer_config,
                                               std::optional<std::string_view> jinja_file) {
  if (!tokenizer_config.is_object()) return invalid("tokenizer_config.json: expected an object");
  OrderedJson tokens = find_special_tokens(tokenizer_config);
  if (jinja_file) return compile(*jinja_file, std::move(tokens));
  const auto source = find_chat_template(tokenizer_config);
  if (!source) return source.status();
  ASSIGN_OR_RETURN(ChatTemplate out, compile(*source, std::move(tokens)));
  if (tokenizer_config["chat_template"].is_array()) {
    if (const auto tool_use = find_chat_template(tokenizer_config, "tool_use")) {
      ASSIGN_OR_RETURN(jinja::Template compiled, compile_source(*tool_use));
      out.tool_use_ = std::move(compiled);
      out.probe();
    }
  }
  return out;
}

Result<std::string> ChatTemplate::render(const OrderedJson& messages, const OrderedJson& tools,
                                         const RenderOptions& options) const {
  if (!messages.is_array()) return invalid("chat template: 'messages' must be a list");
  for (const auto& message : messages)
    if (!message.is_object()) return invalid("chat template: every message must be an object");
  if (!tools.is_null() && !tools.is_array()) return invalid("chat template: 'tools' must be a list or null");
  if (!options.extra.is_object()) return invalid("chat template: the extra variables must be an object");
  const OrderedJson none;
  const OrderedJson add_generation_prompt = options.add_generation_prompt;
  jinja::Variables variables;
  for (const auto& [name, value] : special_tokens_.items()) variables.emplace_back(name, &value);
  variables.emplace_back("messages", &messages);
  variables.emplace_back("tools", &tools);
  variables.emplace_back("documents", &none);
  variables.emplace_back("add_generation_prompt", &add_generation_prompt);
  for (const auto& [name, value] : options.extra.items()) variables.emplace_back(name, &value);
  const jinja::Template& chosen = tool_use_ && !tools.is_null() ? *tool_use_ : main_;
  auto text = chosen.render(variables, options.now ? *options.now : local_now(), options.limits);
  if (!text) return named(text.status());
  return text;
}

void ChatTemplate::probe() {
  takes_parts_ = probe_parts();
  const OrderedJson arguments = {{"key", "probe7351"}};
  past_calls_ = shows_call("", arguments)               ? PastCalls::Objects
                : shows_call(nullptr, arguments.dump()) ? PastCalls::Texts
                                                        : PastCalls::Never;
}

// Whether an earlier call comes out.
bool ChatTemplate::shows_call(const OrderedJson& content, const OrderedJson& arguments) const {
  const OrderedJson function = {{"name", "probe"}, {"arguments", arguments}};
  const OrderedJson call = {{"id", "probe1234"}, {"type", "function"}, {"function", function}};
  const OrderedJson result = {{"role", "tool"}, {"tool_call_id", "probe1234"}, {"name", "probe"}, {"content", "!"}};
  OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", "?"}}});
  messages.push_back({{"role", "assistant"}, {"content", content}, {"tool_calls", OrderedJson::array({call})}});
  messages.push_back(result);
  const OrderedJson described = {{"name", "probe"}, {"description", ""}, {"parameters", {{"type", "object"}}}};
  const OrderedJson tools = OrderedJson::array({{{"type", "function"}, {"function", described}}});
  RenderOptions options;
  options.limits.max_steps = 100'000;
  const auto text = render(messages, tools, options);
  return text && text->find("probe7351") != std::string::npos;
}

// Asks the template itself: a part's text must come out, and not as the printed form of the whole list.
bool ChatTemplate::probe_parts() const {
  const OrderedJson parts = OrderedJson::array({{{"type", "text"}, {"text", "probe7351"}}});
  const OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", parts}}});
  RenderOptions options;
  options.limits.max_steps = 100'000;
  const auto text = render(messages, nullptr, options);
  return text && text->find("probe7351") != std::string::npos && text->find("'probe7351'") == std::string::npos &&
         text->find("\"probe7351\"") == std::string::npos;
}

Result<std::string> find_chat_template(const OrderedJson& tokenizer_config, std::string_view name) {
  const auto found = tokenizer_config.is_object() ? tokenizer_config.find("chat_template") : tokenizer_config.end();
  if (found == tokenizer_config.end() || found->is_null())
    return error(Code::NotFound, "tokenizer_config.json has no chat_template");
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return invalid("tokenizer_config.json: chat_template must be a string or a list");
  std::string names;
  for (const auto& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("template") ||
        !entry["template"].is_string())
      return invalid("tokenizer_config.json: every chat_template of the list needs the strings 'name' and 'template'");
    const auto& entry_name = entry["name"].get_ref<const std::string&>();
    if (entry_name == name) return entry["template"].get<std::string>();
    names += (names.empty() ? "" : ", ") + entry_name;
  }
  return error(Code::NotFound, "tokenizer_config.json has no chat template '{}', only: {}", name, names);
}

OrderedJson find_special_tokens(const OrderedJson& tokenizer_config) {
  OrderedJson out = OrderedJson::object();
  if (!tokenizer_config.is_object()) return out;
  const auto text_of = [](const OrderedJson& token) -> const OrderedJson* {
    if (token.is_string()) return &token;
    if (token.is_object() && token.contains("content") && token["content"].is_string()) return &token["content"];
    return nullptr;
  };
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = tokenizer_config.find(name);
    if (found == tokenizer_config.end()) continue;
    if (const OrderedJson* text = text_of(*found)) out[name] = *text;
  }
  const auto more = tokenizer_config.find("additional_special_tokens");
  if (more != tokenizer_config.end() && more->is_array()) {
    OrderedJson list = OrderedJson::array();
    for (const auto& token : *more)
      if (const OrderedJson* text = text_of(token)) list.push_back(*text);
    out["additional_special_tokens"] = std::move(list);
  }
  return out;
}

Result<OrderedJson> join_text_parts(const OrderedJson& messages) {
  OrderedJson out = messages;
  if (!out.is_array()) return invalid("'messages' must be a list");
  for (auto& message : out) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) continue;
    std::string text;
    bool first = true;
    for (const auto& part : message["content"]) {
      if (!part.is_object() || !part.contains("text") || !part["text"].is_string())
        return invalid("a message holds a part that is no text; this model's chat template takes text alone");
      if (!first) text += ' ';
      first = false;
      text += part["text"].get_ref<const std::string&>();
    }
    message["content"] = std::move(text);
  }
  return out;
}

}  // namespace reprise::text
