#include "server/chat_tools.h"

#include <algorithm>

#include "server/ids.h"
#include "server/image_reader.h"

namespace reprise::server {
namespace {

constexpr size_t kLongestName = 64;

// OpenAI writes the arguments of an earlier call as a text; templates want the object.
void open_arguments(OrderedJson& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (OrderedJson& c : *calls) {
    if (!c.is_object() || !c.contains("function") || !c["function"].is_object()) continue;
    const auto arguments = c["function"].find("arguments");
    if (arguments == c["function"].end() || !arguments->is_string()) continue;
    auto parsed = parse_ordered_json(arguments->get<std::string>(), "arguments");
    if (parsed && parsed->is_object()) *arguments = std::move(*parsed);
  }
}

bool good_name(const OrderedJson& name) {
  if (!name.is_string()) return false;
  const auto& text = name.get_ref<const std::string&>();
  return !text.empty() && text.size() <= kLongestName && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
}

// {"function": {"name", "arguments"}}, as the model's earlier answers told it.
bool good_past_calls(const OrderedJson& calls) {
  return calls.is_array() && std::all_of(calls.begin(), calls.end(), [](const OrderedJson& c) {
           const OrderedJson function = c.is_object() ? c.value("function", OrderedJson()) : OrderedJson();
           if (!function.is_object() || !function.contains("name") || !function.contains("arguments")) return false;
           return function["name"].is_string() &&
                  (function["arguments"].is_string() || function["arguments"].is_object());
         });
}

// Null, or of the kind.
bool absent_or(const OrderedJson& object, const char* name, bool (OrderedJson::*kind)() const noexcept) {
  const OrderedJson* v = given(object, name);
  return !v || (v->*kind)();
}

// A message's content is a text, or a list of parts where the template takes them.
void add_text(OrderedJson& message, const std::string& text, bool in_front = false) {
  OrderedJson& content = message["content"];
  if (content.is_array()) {
    content.insert(in_front ? content.begin() : content.end(), OrderedJson{{"type", "text"}, {"text", text}});
    return;
  }
  const std::string had = content.is_string() ? content.get<std::string>() : std::string();
  const char* between = had.empty() || text.empty() ? "" : in_front ? "\n\n" : "\n";
  content = in_front ? text + between + had : had + between + text;
}

std::string text_of(const OrderedJson& message) {
  const OrderedJson* content = given(message, "content");
  if (!content) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string out;
  for (const OrderedJson& part : *content) out += part.value("text", "");
  return out;
}

bool shows_images(const OrderedJson& message) {
  const OrderedJson* content = given(message, "content");
  return content && content->is_array() &&
         std::any_of(content->begin(), content->end(), [](const OrderedJson& part) { return part["type"] != "text"; });
}

void add_parts(OrderedJson& message, const OrderedJson& parts) {
  OrderedJson& content = message["content"];
  if (content.is_string()) content = OrderedJson::array({{{"type", "text"}, {"text", content}}});
  content.insert(content.end(), parts.begin(), parts.end());
}

// A tool's result as the user's words.
OrderedJson told_result(const OrderedJson& message) {
  OrderedJson content = "<tool_response>\n" + text_of(message) + "\n</tool_response>";
  if (shows_images(message)) {
    content = message["content"];
    content.insert(content.begin(), OrderedJson{{"type", "text"}, {"text", "<tool_response>\n"}});
    content.push_back({{"type", "text"}, {"text", "\n</tool_response>"}});
  }
  return {{"role", "user"}, {"content", std::move(content)}};
}

std::string told_tools(const ChatTools& tools) {
  std::string out = "You can call these functions. Each is described by a line of JSON:\n";
  for (const OrderedJson& t : tools.list) out += dumped(t["function"]) + "\n";
  switch (tools.format) {
    case ToolFormat::List:
      return out + "Answer with nothing but a JSON list of " + (tools.several ? "the calls" : "one call") +
             R"(, such as [{"name": "function_name", "arguments": {"parameter": "value"}}].)";
    case ToolFormat::Arguments:
      return out + "Call " + tools.name + ": answer with nothing but the JSON object of its arguments.";
    default:
      return out + "To call one, write <tool_call>" +
             R"({"name": "function_name", "arguments": {"parameter": "value"}})" + "</tool_call>" +
             (tools.several ? ", once for each call" : ", once") +
             ". The results come between <tool_response> marks. When no call is needed, answer in words.";
  }
}

// [{"name": ..., "arguments": ...}, ...] with at least one of the tools.
OrderedJson list_of_calls(const OrderedJson& tools, bool several) {
  OrderedJson any = OrderedJson::array();
  for (const OrderedJson& t : tools)
    any.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", t["function"]["name"]}}}, {"arguments", parameters_of(t["function"])}}},
         {"required", {"name", "arguments"}},
         {"additionalProperties", false}});
  OrderedJson out = {{"type", "array"}, {"items", {{"anyOf", std::move(any)}}}, {"minItems", 1}};
  if (!several) out["maxItems"] = 1;
  return out;
}

// A text, or an image or video where messages of the role may show some.
bool read_part(Fields& f, const OrderedJson& part, const std::string& at, bool shows, ImageReader* images) {
  const OrderedJson* type = part.is_object() ? given(part, "type") : nullptr;
  const OrderedJson* text = type && *type == "text" ? given(part, "text") : nullptr;
  if (text && text->is_string()) return true;
  if (type && *type == "image_url" && images && shows) return images->add_openai(f, part, at);
  if (type && (*type == "video_url" || *type == "video") && images && shows) return images->add_video(f, part, at);
  if (type && *type == "image" && !images) return true;
  f.fail(at, shows ? "a part of type \"text\", \"image_url\", \"video_url\" or \"video\" is expected"
                   : "a part of type \"text\" is expected; images stand in the messages of the user and of tools");
  return false;
}

}  // namespace

// The messages as templates take them, each checked.
std::optional<OrderedJson> read_messages(Fields& f, const OrderedJson& body, const ServedModel& model,
                                         ImageReader* images) {
  const auto it = body.find("messages");
  if (it == body.end() || !it->is_array() || it->empty()) {
    f.fail("messages", "a list of at least one message is expected");
    return std::nullopt;
  }
  size_t i = 0;
  for (const OrderedJson& m : *it) {
    const std::string at = fmt::format("messages[{}]", i++);
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) {
      f.fail(at, "an object with a \"role\" is expected");
      return std::nullopt;
    }
    const auto content = m.find("content");
    const bool none = content == m.end() || content->is_null();
    const auto calls = m.find("tool_calls");
    const bool called = calls != m.end() && !calls->is_null();
    if (called && !good_past_calls(*calls)) {
      f.fail(at + ".tool_calls", "a list of {\"function\": {\"name\": ..., \"arguments\": ...}} is expected");
      return std::nullopt;
    }
    if (none && !called) {
      f.fail(at + ".content", "a string or a list of parts is expected");
      return std::nullopt;
    }
    if (none || content->is_string()) continue;
    if (!content->is_array()) {
      f.fail(at + ".content", "a string or a list of parts is expected");
      return std::nullopt;
    }
    const bool shows = m["role"] == "user" || m["role"] == "tool";
    for (size_t k = 0; k < content->size(); ++k)
      if (!read_part(f, (*content)[k], fmt::format("{}.content[{}]", at, k), shows, images)) return std::nullopt;
  }
  OrderedJson messages = *it;
  for (OrderedJson& m : messages) {
    if (m.contains("content") && m["content"].is_array())
      for (OrderedJson& part : m["content"])
        // Nothing but what is read: templates take a text with a member `image_url`, even null, for an image.
        part = part["type"] == "text" ? OrderedJson{{"type", "text"}, {"text", part["text"]}}
               : part["type"].get<std::string>().starts_with("vid") ? ImageReader::video_part()
                                                                    : ImageReader::part();
    open_arguments(m);
    // Clients write out what a message has none of; templates take the member for calls.
    if (m.contains("tool_calls") && m["tool_calls"].empty()) m.erase("tool_calls");
    // A call of a tool comes without words; templates that add texts up know no null.
    if (!m.contains("content") || m["content"].is_null()) m["content"] = "";
  }
  if (model.chat_template && model.chat_template->takes_parts()) return messages;
  auto joined = text::join_text_parts(messages);
  if (joined) return std::move(*joined);
  f.fail("messages", joined.status().message());
  return std::nullopt;
}

OrderedJson tell_tools(OrderedJson messages, const ChatTools& tools) {
  OrderedJson out = OrderedJson::array();
  bool of_tool = false;  // the last message, which then is the user's
  for (OrderedJson& m : messages) {
    if (const OrderedJson* calls = given(m, "tool_calls")) {
      std::string text;
      for (const OrderedJson& c : *calls)
        text += (text.empty() ? "" : "\n") + std::string("<tool_call>") +
                dumped({{"name", c["function"]["name"]}, {"arguments", c["function"]["arguments"]}}) + "</tool_call>";
      m.erase("tool_calls");
      add_text(m, text);
    }
    const bool result = m["role"] == "tool" || m["role"] == "function";
    if (result) m = told_result(m);
    // Templates want the user and the assistant to take turns.
    if (!of_tool || m["role"] != "user")
      out.push_back(std::move(m));
    else if (shows_images(m))
      add_parts(out.back(), m["content"]);
    else
      add_text(out.back(), text_of(m));
    of_tool = result;
  }
  if (out.empty() || (out[0]["role"] != "system" && out[0]["role"] != "developer"))
    out.insert(out.begin(), OrderedJson{{"role", "system"}, {"content", ""}});
  const bool said = !text_of(out[0]).empty();
  add_text(out[0], (said ? "\n" : "") + told_tools(tools));
  return out;
}

OrderedJson without_system(OrderedJson messages) {
  if (messages.empty() || (messages[0]["role"] != "system" && messages[0]["role"] != "developer")) return messages;
  const std::string text = text_of(messages[0]);
  messages.erase(messages.begin());
  for (OrderedJson& m : messages)
    if (m["role"] == "user") {
      add_text(m, text, true);
      return messages;
    }
  messages.insert(messages.begin(), OrderedJson{{"role", "user"}, {"content", text}});
  return messages;
}

ChatTools read_tools(Fields& f, const OrderedJson& body, const ServedModel& model) {
  ChatTools out;
  const auto wrong = [&](const std::string& name, std::string message) {
    f.fail(name, std::move(message));
    return ChatTools{};
  };
  const bool parallel = f.flag("parallel_tool_calls", true);
  const auto list = body.find("tools");
  const auto choice = body.find("tool_choice");
  const bool chosen = choice != body.end() && !choice->is_null();
  if (list == body.end() || list->is_null() || (list->is_array() && list->empty())) {
    if (chosen && *choice != "none" && *choice != "auto") return wrong("tool_choice", "it needs \"tools\"");
    return out;
  }
  if (!list->is_array() || list->size() > kMostTools)
    return wrong("tools", fmt::format("a list of at most {} tools is expected", kMostTools));
  for (size_t i = 0; i < list->size(); ++i) {
    const OrderedJson& t = (*list)[i];
    const bool function = t.is_object() && t.value("type", OrderedJson()) == "function" && t.contains("function") &&
                          t["function"].is_object() && t["function"].contains("name");
    if (function && !absent_or(t["function"], "parameters", &OrderedJson::is_object))
      return wrong(fmt::format("tools[{}].function.parameters", i), "a JSON schema, which is an object, is expected");
    if (function && !absent_or(t["function"], "description", &OrderedJson::is_string))
      return wrong(fmt::format("tools[{}].function.description", i), "a string is expected");
    if (!function || !good_name(t["function"]["name"]))
      return wrong(
          fmt::format("tools[{}]", i),
          fmt::format(
              "{{\"type\": \"function\", \"function\": {{\"name\": ...}}}} is expected, with a name of at most {} "
              "letters, digits, dots, dashes and underscores",
              kLongestName));
  }
  if (chosen && *choice == "none") return out;
  out.list = *list;
  out.several = parallel;
  // A template that names no tools would drop them.
  out.in_system_prompt = !model.chat_template || model.chat_template->source().find("tools") == std::string::npos;
  if (!chosen || *choice == "auto") {
    out.format = model.tool_format;
    // Its own way to call is not known: it is told one.
    if (out.format == ToolFormat::None) {
      out.in_system_prompt = true;
      out.format = ToolFormat::Hermes;
    }
    return out;
  }
  if (*choice == "required") {
    out.format = ToolFormat::List;
    out.form = AnswerForm{AnswerForm::Schema{list_of_calls(*list, parallel)}};
    return out;
  }
  const OrderedJson* type = given(*choice, "type");
  const OrderedJson* function = given(*choice, "function");
  const OrderedJson* name = function ? given(*function, "name") : nullptr;
  if (!name || (type && *type != "function"))
    return wrong("tool_choice", "\"none\", \"auto\", \"required\" or a function of \"tools\" is expected");
  for (const OrderedJson& t : *list) {
    if (t["function"]["name"] != *name) continue;
    out.format = ToolFormat::Arguments;
    out.name = t["function"]["name"].get<std::string>();
    out.form = AnswerForm{AnswerForm::Schema{parameters_of(t["function"])}};
    return out;
  }
  return wrong("tool_choice", "it names a function that is not in \"tools\"");
}

int64_t count_calls(const OrderedJson& messages) {
  int64_t out = 0;
  for (const OrderedJson& m : messages)
    if (const OrderedJson* calls = given(m, "tool_calls")) out += static_cast<int64_t>(calls->size());
  return out;
}

namespace {

std::string id_in(const OrderedJson& object, const char* name) {
  const OrderedJson* id = given(object, name);
  return id && id->is_string() ? id->get<std::string>() : std::string();
}

}  // namespace

OrderedJson shorten_ids(OrderedJson messages) {
  int64_t calls = 0;
  std::vector<std::string> open;  // calls without a result, in order
  for (OrderedJson& m : messages) {
    if (m.contains("tool_calls") && m["tool_calls"].is_array())
      for (OrderedJson& c : m["tool_calls"]) {
        const std::string id = id_in(c, "id");
        c["id"] = short_id_of(id.empty() ? fmt::format("call {}", calls) : id);
        open.push_back(c["id"].get<std::string>());
        ++calls;
      }
    if (m["role"] != "tool") continue;
    const std::string id = id_in(m, "tool_call_id");
    const std::string of = !id.empty() ? short_id_of(id) : !open.empty() ? open.front() : std::string();
    if (of.empty()) continue;
    m["tool_call_id"] = of;
    std::erase(open, of);
  }
  return messages;
}

OrderedJson write_past_calls(OrderedJson messages, const ServedModel& model) {
  const text::ChatTemplate::PastCalls way = model.chat_template->past_calls();
  const bool apart = way == text::ChatTemplate::PastCalls::Texts;
  if (!apart && (way != text::ChatTemplate::PastCalls::Never || model.tool_format != ToolFormat::Granite))
    return messages;
  OrderedJson out = OrderedJson::array();
  for (OrderedJson& m : messages) {
    const OrderedJson* calls = given(m, "tool_calls");
    if (!calls) {
      out.push_back(std::move(m));
      continue;
    }
    OrderedJson words = m, list = OrderedJson::array();
    words.erase("tool_calls");
    for (const OrderedJson& c : *calls)
      list.push_back({{"name", c["function"]["name"]}, {"arguments", c["function"]["arguments"]}});
    if (!apart) add_text(words, "<|tool_call|>" + dumped(list));
    if (!text_of(words).empty()) out.push_back(std::move(words));
    if (!apart) continue;
    for (OrderedJson& c : m["tool_calls"]) {
      OrderedJson& arguments = c["function"]["arguments"];
      if (!arguments.is_string()) arguments = dumped(arguments);
    }
    m["content"] = nullptr;
    out.push_back(std::move(m));
  }
  return out;
}

OrderedJson place_tools(OrderedJson messages, const OrderedJson& tools) {
  OrderedJson functions = OrderedJson::array();
  for (const OrderedJson& t : tools) functions.push_back(t["function"]);
  if (messages.empty() || messages[0]["role"] != "system")
    messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", ""}});
  messages[0]["tools"] = dumped(functions);
  return messages;
}

OrderedJson name_thoughts(OrderedJson messages) {
  for (OrderedJson& m : messages) {
    if (m["role"] != "assistant") continue;
    std::string thought;
    // The template's own name, ours, and vLLM's.
    for (const char* name : {"thinking", "reasoning_content", "reasoning"})
      if (const OrderedJson* v = given(m, name); v && v->is_string() && thought.empty())
        thought = v->get<std::string>();
    m.erase("thinking");
    if (thought.empty()) continue;
    if (m.contains("tool_calls")) {
      const std::string words = text_of(m);
      if (!words.empty()) thought += "\n" + words;
      m["content"] = "";
    }
    m["thinking"] = std::move(thought);
  }
  return messages;
}

OrderedJson describe_tools(OrderedJson tools) {
  for (OrderedJson& t : tools)
    if (!given(t["function"], "description")) t["function"]["description"] = "";
  return tools;
}

}  // namespace reprise::server
