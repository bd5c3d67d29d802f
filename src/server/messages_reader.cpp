#include "server/messages_reader.h"

#include <functional>

#include "server/call_reader.h"
#include "server/ids.h"
#include "server/image_reader.h"

namespace reprise::server {
namespace {

// Claude Code begins its system prompt with a block that is different in every request; kept, no prefix would ever be
// found in the cache.
constexpr std::string_view kAttribution = "x-anthropic-billing-header:";

using Type = std::string;
using Name = std::string;

// The blocks of one content, which may be a text; false after an error.
class Blocks {
 public:
  Blocks(Fields& f, std::string at) : f_(f), at_(std::move(at)) {}

  // Calls `block` with each block's type and name; a text counts as one block.
  using Block = std::function<bool(const std::string& type, const OrderedJson& block, const std::string& name)>;
  bool each(const OrderedJson* content, const Block& block) {
    if (!content) return wrong(at_, "a string or a list of blocks is expected");
    if (content->is_string()) return block("text", OrderedJson{{"type", "text"}, {"text", *content}}, at_);
    if (!content->is_array()) return wrong(at_, "a string or a list of blocks is expected");
    for (size_t i = 0; i < content->size(); ++i) {
      const OrderedJson& b = (*content)[i];
      const std::string name = fmt::format("{}[{}]", at_, i), type = text_of_member(b, "type");
      if (type.empty()) return wrong(name, "a block, an object with a \"type\", is expected");
      if (type == "text" && !(given(b, "text") && b["text"].is_string()))
        return wrong(name + ".text", "a string is expected");
      if (!block(type, b, name)) return false;
    }
    return true;
  }
  bool wrong(const std::string& name, std::string message) {
    f_.fail(name, std::move(message));
    return false;
  }

 private:
  Fields& f_;
  std::string at_;
};

// What a block of another kind is told.
std::string not_read(std::string_view type, std::string_view allowed) {
  return fmt::format("blocks of type \"{}\" are not read; there are {}", type.substr(0, 40), allowed);
}

// What a turn says: a text, whose blocks are lines, or a list of parts where images stand between.
class Content {
 public:
  void add_text(const std::string& more) {
    if (parts_.empty() || parts_.back()["type"] != "text") {
      parts_.push_back({{"type", "text"}, {"text", more}});
      return;
    }
    add_line(parts_.back()["text"].get_ref<std::string&>(), more);
  }
  void add_image() {
    parts_.push_back(ImageReader::part());
    shows_ = true;
  }
  bool empty() const { return parts_.empty(); }
  OrderedJson take() {
    OrderedJson parts = std::exchange(parts_, OrderedJson::array());
    if (std::exchange(shows_, false)) return parts;
    return parts.empty() ? OrderedJson("") : parts[0]["text"];
  }

 private:
  OrderedJson parts_ = OrderedJson::array();
  bool shows_ = false;
};

bool add_shown(Fields& f, const Type& type, const OrderedJson& block, const Name& at, ImageReader& images,
               Content& out) {
  if (type == "text") {
    out.add_text(block["text"].get<std::string>());
    return true;
  }
  if (!images.add_anthropic(f, block, at)) return false;
  out.add_image();
  return true;
}

// A tool's result as a text, or parts. Documents in it cannot be seen.
bool read_result(Fields& f, const OrderedJson& block, const std::string& name, ImageReader& images, OrderedJson& out) {
  if (text_of_member(block, "tool_use_id").empty())
    return Blocks(f, "").wrong(name + ".tool_use_id", "a string is expected");
  Content content;
  const OrderedJson* failed = given(block, "is_error");
  if (failed && !failed->is_boolean()) return Blocks(f, "").wrong(name + ".is_error", "true or false is expected");
  const bool good = !given(block, "content") ||
                    Blocks(f, name + ".content")
                        .each(given(block, "content"), [&](const Type& type, const OrderedJson& b, const Name& at) {
                          if (type != "text" && type != "image")
                            return Blocks(f, "").wrong(at, not_read(type, "text and image"));
                          return add_shown(f, type, b, at, images, content);
                        });
  OrderedJson shown = content.take();
  if (failed && failed->get<bool>()) {
    if (shown.is_string())
      shown = "Error: " + shown.get<std::string>();
    else
      shown.insert(shown.begin(), OrderedJson{{"type", "text"}, {"text", "Error: "}});
  }
  out = {{"role", "tool"}, {"tool_call_id", block["tool_use_id"]}, {"content", std::move(shown)}};
  return good;
}

bool read_user(Fields& f, const OrderedJson& message, const std::string& at, ImageReader& images, OrderedJson& out) {
  Content content;
  const auto say = [&] {
    if (!content.empty()) out.push_back({{"role", "user"}, {"content", content.take()}});
  };
  const bool good = Blocks(f, at + ".content")
                        .each(given(message, "content"), [&](const Type& type, const OrderedJson& b, const Name& name) {
                          if (type == "text" || type == "image") return add_shown(f, type, b, name, images, content);
                          if (type != "tool_result")
                            return Blocks(f, "").wrong(name, not_read(type, "text, image and tool_result"));
                          say();
                          OrderedJson result;
                          if (!read_result(f, b, name, images, result)) return false;
                          out.push_back(std::move(result));
                          return true;
                        });
  say();
  return good;
}

bool read_assistant(Fields& f, const OrderedJson& message, const std::string& at, OrderedJson& out) {
  std::string text, thought;
  OrderedJson calls = OrderedJson::array();
  const bool good =
      Blocks(f, at + ".content")
          .each(given(message, "content"), [&](const Type& type, const OrderedJson& b, const Name& name) {
            if (type == "text") {
              add_line(text, b["text"].get<std::string>());
            } else if (type == "thinking") {
              if (!given(b, "thinking") || !b["thinking"].is_string())
                return Blocks(f, "").wrong(name + ".thinking", "a string is expected");
              add_line(thought, b["thinking"].get<std::string>());
            } else if (type == "tool_use") {
              const OrderedJson* input = given(b, "input");
              if (given(b, "id") && !b["id"].is_string())
                return Blocks(f, "").wrong(name + ".id", "a string is expected");
              if (text_of_member(b, "name").empty()) return Blocks(f, "").wrong(name + ".name", "a string is expected");
              if (!input || !input->is_object()) return Blocks(f, "").wrong(name + ".input", "an object is expected");
              calls.push_back({{"id", text_of_member(b, "id")},
                               {"type", "function"},
                               {"function", {{"name", b["name"]}, {"arguments", *input}}}});
            } else if (type != "redacted_thinking") {
              return Blocks(f, "").wrong(name, not_read(type, "text, thinking, redacted_thinking and tool_use"));
            }
            return true;
          });
  OrderedJson turn = {{"role", "assistant"}, {"content", std::move(text)}};
  if (!thought.empty()) turn["reasoning_content"] = std::move(thought);
  if (!calls.empty()) turn["tool_calls"] = std::move(calls);
  out.push_back(std::move(turn));
  return good;
}

// The system prompt, in which later system messages are merged: many templates take one, at the beginning.
struct System {
  std::string text;
  bool attribution = false;  // was left out
};

// What leads it may be a line of Claude Code about itself, which is left out unless it is to be kept.
bool add_system(Fields& f, const OrderedJson* content, std::string at, System& out, bool keep_attribution) {
  return Blocks(f, std::move(at)).each(content, [&](const Type& type, const OrderedJson& b, const Name& name) {
    if (type != "text") return Blocks(f, "").wrong(name, not_read(type, "text"));
    const auto text = b["text"].get<std::string>();
    if (text.starts_with(kAttribution) && out.text.empty() && !keep_attribution)
      out.attribution = true;
    else
      add_line(out.text, text);
    return true;
  });
}

std::optional<OrderedJson> conversation(Fields& f, const OrderedJson& body, GenerateCall& call,
                                        const ServedModel& model, const CallLimits& limits) {
  ImageReader images(call, model, limits);
  const auto none = [&](const std::string& name, std::string message) {
    f.fail(name, std::move(message));
    return std::nullopt;
  };
  System system;
  if (const OrderedJson* s = given(body, "system"))
    if (!add_system(f, s, "system", system, limits.keep_attribution)) return std::nullopt;
  const OrderedJson* list = given(body, "messages");
  if (!list || !list->is_array() || list->empty())
    return none("messages", "a list of at least one message is expected");
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < list->size(); ++i) {
    const OrderedJson& m = (*list)[i];
    const std::string at = fmt::format("messages[{}]", i), role = text_of_member(m, "role");
    bool good = false;
    if (role == "user")
      good = read_user(f, m, at, images, out);
    else if (role == "assistant")
      good = read_assistant(f, m, at, out);
    else if (role == "system")
      good = add_system(f, given(m, "content"), at + ".content", system, limits.keep_attribution);
    else
      return none(at + ".role", "\"user\", \"assistant\" or \"system\" is expected");
    if (!good) return std::nullopt;
  }
  if (system.attribution)
    warn(f, "system", "has a block x-anthropic-billing-header, which is left out of the prompt", call, limits);
  if (!system.text.empty()) out.insert(out.begin(), OrderedJson{{"role", "system"}, {"content", system.text}});
  return out;
}

// The tools as OpenAI's chats have them. Tools that Anthropic runs, or whose schema only its models know, are left out
// and named.
bool convert_message_tools(Fields& f, const OrderedJson& body, OrderedJson& out, GenerateCall& call,
                           const CallLimits& limits) {
  const OrderedJson* list = given(body, "tools");
  if (!list) return true;
  Blocks blocks(f, "");
  if (!list->is_array()) return blocks.wrong("tools", "a list is expected");
  OrderedJson tools = OrderedJson::array();
  for (size_t i = 0; i < list->size(); ++i) {
    const OrderedJson& t = (*list)[i];
    const std::string at = fmt::format("tools[{}]", i);
    if (!t.is_object()) return blocks.wrong(at, "an object is expected");
    if (const OrderedJson* type = given(t, "type")) {
      if (!type->is_string()) return blocks.wrong(at + ".type", "a string is expected");
      if (*type != "custom") {
        warn(f, fmt::format("tools.{}", type->get<std::string>().substr(0, 64)), "is not served here, and left out",
             call, limits);
        continue;
      }
    }
    if (text_of_member(t, "name").empty()) return blocks.wrong(at + ".name", "a string is expected");
    const OrderedJson* schema = given(t, "input_schema");
    if (!schema || !schema->is_object())
      return blocks.wrong(at + ".input_schema", "a JSON schema, which is an object, is expected");
    if (given(t, "description") && !t["description"].is_string())
      return blocks.wrong(at + ".description", "a string is expected");
    OrderedJson function = {{"name", t["name"]}};
    if (given(t, "description")) function["description"] = t["description"];
    function["parameters"] = *schema;
    if (const OrderedJson* strict = given(t, "strict")) {
      if (!strict->is_boolean()) return blocks.wrong(at + ".strict", "true or false is expected");
      if (strict->get<bool>()) function["strict"] = true;
    }
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  out["tools"] = std::move(tools);
  return true;
}

bool convert_message_choice(Fields& f, const OrderedJson& body, OrderedJson& out) {
  const OrderedJson* choice = given(body, "tool_choice");
  if (!choice) return true;
  const std::string type = text_of_member(*choice, "type"), name = text_of_member(*choice, "name");
  if (type == "auto" || type == "none")
    out["tool_choice"] = type;
  else if (type == "any")
    out["tool_choice"] = "required";
  else if (type == "tool" && !name.empty())
    out["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  else
    return Blocks(f, "").wrong("tool_choice",
                               "an object with \"type\": \"auto\", \"any\", \"none\", or \"tool\" and a \"name\", is "
                               "expected");
  const OrderedJson* alone = given(*choice, "disable_parallel_tool_use");
  if (alone && !alone->is_boolean())
    return Blocks(f, "").wrong("tool_choice.disable_parallel_tool_use", "true or false is expected");
  if (alone && alone->get<bool>()) out["parallel_tool_calls"] = false;
  return true;
}

void read_thinking(Fields& f, GenerateCall& call, const ServedModel& model, const CallLimits& limits,
                   text::RenderOptions& options) {
  const Json* v = f.find("thinking");
  if (!v) return;
  Fields thinking(*v, "thinking.");
  const std::string type = thinking.text("type", "");
  f.take(thinking.error());
  if (f.error()) return;
  if (type != "enabled" && type != "adaptive" && type != "disabled" && type != "between_tools")
    return f.fail("thinking.type", "\"enabled\", \"adaptive\", \"between_tools\" or \"disabled\" is expected");
  // For an adaptive model the template says it.
  if (type == "adaptive" || type == "between_tools") return;
  if (!set_thinking(type == "enabled", model, options) && type == "enabled" && !model.reasoning)
    warn(f, "thinking", "is not used by this model's chat template", call, limits);
  if (thinking.has("budget_tokens"))
    warn(f, "thinking.budget_tokens", "is not honoured; there is max_tokens", call, limits);
}

void read_output(Fields& f, const OrderedJson& body, ChatTools& tools, GenerateCall& call, const ServedModel& model,
                 const CallLimits& limits, text::RenderOptions& options) {
  const Json* v = f.find("output_config");
  if (!v) return;
  Fields output(*v, "output_config.");
  const auto effort = output.maybe_text("effort");
  f.take(output.error());
  if (f.error()) return;
  if (effort && model.chat_template) set_effort(f, "output_config.effort", *effort, call, model, limits, options);
  if (!output.has("format")) return;
  const OrderedJson& format = body["output_config"]["format"];
  const OrderedJson* schema = given(format, "schema");
  if (text_of_member(format, "type") != "json_schema" || !schema || !schema->is_object())
    return f.fail("output_config.format", "an object with \"type\": \"json_schema\" and a \"schema\" is expected");
  if (tools.form) return f.fail("tool_choice", "the answer cannot also be held to output_config.format");
  hold_to_or_call(f, "output_config.format", AnswerForm{AnswerForm::Schema{*schema}}, tools, call, model);
}

ParsedCall parse(const OrderedJson& body, const ServedModel& model, const CallLimits& limits, bool counts) {
  const Json plain = body;
  Fields f(plain);
  GenerateCall call;
  call.kind = CallKind::Chat;
  call.id = make_id("msg_");
  warn_of_fields(f, body, FieldForm::Messages, "", call, limits);
  check_model(f, call, model);
  call.sampling = default_sampling(model);
  call.priority = limits.default_priority;
  engine::SamplingParams& p = call.sampling;
  p.temperature = f.number("temperature", p.temperature, 0, 1);
  p.top_p = f.number("top_p", p.top_p, 0, 1);
  if (p.top_p == 0) p.top_p = 1e-9;  // the likeliest token alone
  p.top_k = f.integer("top_k", p.top_k, 0, kMany);
  if (const Json* stops = f.find("stop_sequences"); stops && !stops->is_array())
    f.fail("stop_sequences", "a list of strings is expected");
  read_stops(f, "stop_sequences", call, limits);
  call.stream = f.flag("stream", false);
  const auto most = f.maybe_integer("max_tokens", 1, kMany);
  if (!most && !counts) f.fail("max_tokens", "it is required");
  p.max_new_tokens = counts ? 1 : most.value_or(1);
  if (const Json* metadata = f.find("metadata"); metadata && !metadata->is_object())
    f.fail("metadata", "an object is expected");
  check_chats(f, "messages", model);
  OrderedJson chat = OrderedJson::object();
  if (f.error() || !convert_message_tools(f, body, chat, call, limits) || !convert_message_choice(f, body, chat))
    return *f.error();
  const Json plain_chat = chat;
  Fields t(plain_chat);
  ChatTools tools = read_tools(t, chat, model);
  f.take(t.error());
  text::RenderOptions options;
  options.add_generation_prompt = true;
  read_thinking(f, call, model, limits, options);
  if (tools.form) hold_to(f, "tool_choice", *tools.form, call, model);
  read_output(f, body, tools, call, model, limits, options);
  warn_of_tools(f, tools, call, limits);
  if (f.error()) return *f.error();
  auto messages = conversation(f, body, call, model, limits);
  if (messages) messages = read_turns(f, std::move(*messages), model);
  if (messages) write_prompt(f, "messages", {std::move(*messages), tools, std::move(options)}, call, model);
  check_call(f, call, model, limits, "messages");
  if (f.error()) return *f.error();
  return call;
}

}  // namespace

ParsedCall parse_messages(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  return parse(body, model, limits, false);
}

ParsedCall parse_messages_to_count(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  return parse(body, model, limits, true);
}

}  // namespace reprise::server
