#include "server/responses_reader.h"

#include <algorithm>

#include "server/call_reader.h"
#include "server/ids.h"
#include "server/image_reader.h"

namespace reprise::server {
namespace {

// What Codex keeps of hosted tools and of contexts that OpenAI wrote for itself: nothing that a model here could read.
constexpr std::string_view kUnreadItems[] = {
    "web_search_call", "image_generation_call", "tool_search_call",   "tool_search_output",
    "compaction",      "compaction_trigger",    "context_compaction", "configuration_update"};
constexpr std::string_view kMoreTools = "additional_tools";  // an item that has tools; those are read with the others

// Once for each kind, however many there are.
void warn_once(Fields& f, const std::string& field, const char* text, GenerateCall& call, const CallLimits& limits) {
  for (const FieldWarning& w : call.warnings)
    if (w.field == field) return;
  warn(f, field, text, call, limits);
}

// The items of `input` as messages of OpenAI's chats. What the assistant thought, said and called in a row is one
// message; messages of the system and the developer are joined to the first, which many templates ask for.
class Conversation {
 public:
  Conversation(Fields& f, GenerateCall& call, const ServedModel& model, const CallLimits& limits)
      : f_(f), call_(call), limits_(limits), images_(call, model, limits) {}

  bool read(const OrderedJson& body) {
    if (const auto instructions = f_.maybe_text("instructions")) system_ = *instructions;
    const OrderedJson* input = given(body, "input");
    if (!input) return wrong("input", "it is required");
    if (input->is_string()) {
      messages_.push_back({{"role", "user"}, {"content", *input}});
    } else if (input->is_array() && !input->empty()) {
      for (size_t i = 0; i < input->size(); ++i)
        if (!read_item((*input)[i], fmt::format("input[{}]", i))) return false;
    } else {
      return wrong("input", "a string, or a list of at least one item, is expected");
    }
    end_turn();
    if (!system_.empty()) messages_.insert(messages_.begin(), OrderedJson{{"role", "system"}, {"content", system_}});
    return !f_.error() && (!messages_.empty() || wrong("input", "there is nothing to answer"));
  }
  OrderedJson take() { return std::move(messages_); }

 private:
  bool wrong(const std::string& name, std::string message) {
    f_.fail(name, std::move(message));
    return false;
  }

  bool read_item(const OrderedJson& item, const std::string& at) {
    if (!item.is_object()) return wrong(at, "an object is expected");
    if (given(item, "type") && !item["type"].is_string()) return wrong(at + ".type", "a string is expected");
    const std::string type = text_of_member(item, "type");
    if (type.empty() || type == "message") return read_message(item, at);
    if (type == "reasoning") return read_thought(item, at);
    if (type == "function_call" || type == "custom_tool_call") return read_call(item, at, type == "function_call");
    if (type == "function_call_output" || type == "custom_tool_call_output") return read_output(item, at);
    if (type == "agent_message") return read_agent(item, at);
    if (type == kMoreTools) return true;
    if (std::find(std::begin(kUnreadItems), std::end(kUnreadItems), type) != std::end(kUnreadItems)) {
      warn_once(f_, "input." + type, "is not read, and left out", call_, limits_);
      return true;
    }
    return wrong(at, fmt::format("items of type \"{}\" are not read; there are message, reasoning, function_call, "
                                 "function_call_output, custom_tool_call and custom_tool_call_output",
                                 type.substr(0, 40)));
  }

  // A text, or a list of parts where images stand between its lines.
  bool read_shown(const OrderedJson* content, const std::string& at, OrderedJson& out) {
    OrderedJson parts = OrderedJson::array(), texts = OrderedJson::array();
    const auto end_texts = [&](size_t i) {
      std::string text;
      if (!texts.empty() && !read_text(&texts, at, text, i - texts.size())) return false;
      if (!texts.empty()) parts.push_back({{"type", "text"}, {"text", std::move(text)}});
      texts.clear();
      return true;
    };
    bool shows = false;
    for (size_t i = 0; content && content->is_array() && i < content->size(); ++i) {
      const OrderedJson& part = (*content)[i];
      if (!part.is_object() || text_of_member(part, "type") != "input_image") {
        texts.push_back(part);
        continue;
      }
      if (!end_texts(i) || !images_.add_response(f_, part, fmt::format("{}[{}]", at, i))) return false;
      parts.push_back(ImageReader::part());
      shows = true;
    }
    if (shows) {
      if (!end_texts(content->size())) return false;
      out = std::move(parts);
      return true;
    }
    std::string text;
    if (!read_text(content, at, text)) return false;
    out = std::move(text);
    return true;
  }

  // A text, or parts of it; the first of them is the one of this number.
  bool read_text(const OrderedJson* content, const std::string& at, std::string& out, size_t first = 0) {
    if (content && content->is_string()) {
      out = content->get<std::string>();
      return true;
    }
    if (!content || !content->is_array()) return wrong(at, "a string or a list of parts is expected");
    for (size_t i = 0; i < content->size(); ++i) {
      const OrderedJson& part = (*content)[i];
      const std::string name = fmt::format("{}[{}]", at, first + i),
                        type = part.is_object() ? text_of_member(part, "type") : "";
      const bool refusal = type == "refusal";
      if (!refusal && type != "input_text" && type != "output_text" && type != "text")
        return wrong(name,
                     "a part of type input_text or output_text is expected; input_image stands in the user's "
                     "messages and in the outputs of tools");
      const OrderedJson* text = given(part, refusal ? "refusal" : "text");
      if (!text || !text->is_string()) return wrong(name + (refusal ? ".refusal" : ".text"), "a string is expected");
      add_line(out, text->get<std::string>());
    }
    return true;
  }

  bool read_message(const OrderedJson& item, const std::string& at) {
    const std::string role = text_of_member(item, "role");
    std::string text;
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return wrong(at + ".role", "\"user\", \"assistant\", \"system\" or \"developer\" is expected");
    if (role == "user") {
      OrderedJson shown;
      if (!read_shown(given(item, "content"), at + ".content", shown)) return false;
      end_turn();
      messages_.push_back({{"role", "user"}, {"content", std::move(shown)}});
      return true;
    }
    if (!read_text(given(item, "content"), at + ".content", text)) return false;
    if (role == "assistant") {
      // What comes after calls begins another turn.
      if (turn().contains("tool_calls")) end_turn();
      std::string said = turn()["content"].get<std::string>();
      add_line(said, text);
      turn()["content"] = std::move(said);
    } else {
      add_line(system_, text);
    }
    return true;
  }

  // What another agent of the client says. Its text may be encrypted, for OpenAI's models alone.
  bool read_agent(const OrderedJson& item, const std::string& at) {
    const OrderedJson* content = given(item, "content");
    if (!content || !content->is_array()) return wrong(at + ".content", "a list of parts is expected");
    OrderedJson texts = OrderedJson::array();
    for (const OrderedJson& part : *content)
      if (part.is_object() && text_of_member(part, "type") == "encrypted_content")
        warn_once(f_, "input.agent_message.encrypted_content", "is not read, and left out", call_, limits_);
      else
        texts.push_back(part);
    std::string text;
    if (!read_text(&texts, at + ".content", text)) return false;
    end_turn();
    if (!text.empty()) messages_.push_back({{"role", "user"}, {"content", std::move(text)}});
    return true;
  }

  bool read_thought(const OrderedJson& item, const std::string& at) {
    const OrderedJson* content = given(item, "content");
    if (!content) return true;  // another server's, which it keeps to itself
    if (!content->is_array()) return wrong(at + ".content", "a list of parts is expected");
    std::string thought;
    for (size_t i = 0; i < content->size(); ++i) {
      const OrderedJson& part = (*content)[i];
      if (!part.is_object() || !given(part, "text") || !part["text"].is_string())
        return wrong(fmt::format("{}.content[{}].text", at, i), "a string is expected");
      add_line(thought, part["text"].get<std::string>());
    }
    end_turn();
    if (!thought.empty()) turn()["reasoning_content"] = std::move(thought);
    return true;
  }

  bool read_call(const OrderedJson& item, const std::string& at, bool function) {
    const char* field = function ? "arguments" : "input";
    const OrderedJson* text = given(item, field);
    for (const char* name : {"call_id", "name"})
      if (text_of_member(item, name).empty()) return wrong(at + "." + name, "a string is expected");
    if (!text || !text->is_string()) return wrong(at + "." + field, "a string is expected");
    if (const OrderedJson* space = given(item, "namespace"); space && !space->is_string())
      return wrong(at + ".namespace", "a string is expected");
    OrderedJson arguments = *text;
    if (!function) arguments = {{"input", *text}};
    const std::string name = joined_tool_name(text_of_member(item, "namespace"), text_of_member(item, "name"));
    turn()["tool_calls"].push_back({{"id", item["call_id"]},
                                    {"type", "function"},
                                    {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
    return true;
  }

  bool read_output(const OrderedJson& item, const std::string& at) {
    OrderedJson shown;
    if (text_of_member(item, "call_id").empty()) return wrong(at + ".call_id", "a string is expected");
    if (!read_shown(given(item, "output"), at + ".output", shown)) return false;
    end_turn();
    messages_.push_back({{"role", "tool"}, {"tool_call_id", item["call_id"]}, {"content", std::move(shown)}});
    return true;
  }

  OrderedJson& turn() {
    if (turn_.is_null()) turn_ = {{"role", "assistant"}, {"content", ""}};
    return turn_;
  }
  void end_turn() {
    if (!turn_.is_null()) messages_.push_back(std::exchange(turn_, OrderedJson()));
  }

  Fields& f_;
  GenerateCall& call_;
  const CallLimits& limits_;
  ImageReader images_;
  OrderedJson messages_ = OrderedJson::array(), turn_;
  std::string system_;
};

bool wrong(Fields& f, const std::string& name, std::string message) {
  f.fail(name, std::move(message));
  return false;
}

// All tools: those of `tools`, and those that items of the input bring.
std::optional<OrderedJson> tools_of(Fields& f, const OrderedJson& body) {
  OrderedJson out = OrderedJson::array();
  const auto add = [&](const OrderedJson* list, const std::string& at) {
    if (!list) return true;
    if (!list->is_array()) return wrong(f, at, "a list is expected");
    out.insert(out.end(), list->begin(), list->end());
    return true;
  };
  if (!add(given(body, "tools"), "tools")) return std::nullopt;
  if (const OrderedJson* input = given(body, "input"); input && input->is_array())
    for (size_t i = 0; i < input->size(); ++i)
      if ((*input)[i].is_object() && text_of_member((*input)[i], "type") == kMoreTools &&
          !add(given((*input)[i], "tools"), fmt::format("input[{}].tools", i)))
        return std::nullopt;
  return out;
}

// A function, or a custom tool, which is a function of one text.
bool convert_tool(Fields& f, const OrderedJson& t, const std::string& at, const std::string& space, OrderedJson& out) {
  if (text_of_member(t, "name").empty()) return wrong(f, at + ".name", "a string is expected");
  OrderedJson function = {{"name", joined_tool_name(space, text_of_member(t, "name"))}};
  if (const OrderedJson* description = given(t, "description")) {
    if (!description->is_string()) return wrong(f, at + ".description", "a string is expected");
    function["description"] = *description;
  }
  if (text_of_member(t, "type") == "custom") {
    function["parameters"] = {{"type", "object"},
                              {"properties", {{"input", {{"type", "string"}}}}},
                              {"required", OrderedJson::array({"input"})},
                              {"additionalProperties", false}};
  } else if (const OrderedJson* parameters = given(t, "parameters")) {
    if (!parameters->is_object()) return wrong(f, at + ".parameters", "a JSON schema, which is an object, is expected");
    function["parameters"] = *parameters;
  }
  if (const OrderedJson* strict = given(t, "strict")) {
    if (!strict->is_boolean()) return wrong(f, at + ".strict", "true or false is expected");
    if (*strict == true) function["strict"] = true;
  }
  out.push_back({{"type", "function"}, {"function", std::move(function)}});
  return true;
}

// The tools as OpenAI's chats have them. Those of a namespace stand among the others; hosted tools are left out and
// named, and so is the grammar of a custom tool.
bool convert_response_tools(Fields& f, const OrderedJson& list, OrderedJson& out, GenerateCall& call,
                            const CallLimits& limits) {
  size_t seen = 0;
  const auto add = [&](const OrderedJson& t, const std::string& at, const std::string& space, auto& again) {
    if (++seen > kMostTools) return wrong(f, "tools", fmt::format("at most {} tools are expected", kMostTools));
    if (!t.is_object() || text_of_member(t, "type").empty())
      return wrong(f, at, "an object with a \"type\" is expected");
    const std::string type = text_of_member(t, "type");
    if (type == "namespace" && space.empty()) {
      const OrderedJson* members = given(t, "tools");
      if (text_of_member(t, "name").empty()) return wrong(f, at + ".name", "a string is expected");
      if (!members || !members->is_array()) return wrong(f, at + ".tools", "a list is expected");
      for (size_t i = 0; i < members->size(); ++i)
        if (!again((*members)[i], fmt::format("{}.tools[{}]", at, i), text_of_member(t, "name"), again)) return false;
      return true;
    }
    if (type != "function" && type != "custom") {
      warn_once(f, "tools." + type.substr(0, 64), "is not served here, and left out", call, limits);
      return true;
    }
    const OrderedJson* format = type == "custom" ? given(t, "format") : nullptr;
    if (format && text_of_member(*format, "type") == "grammar")
      warn_once(f, "tools.custom.format", "is not honoured: the text is free", call, limits);
    return convert_tool(f, t, at, space, out);
  };
  for (size_t i = 0; i < list.size(); ++i)
    if (!add(list[i], fmt::format("tools[{}]", i), "", add)) return false;
  return true;
}

bool convert_response_choice(Fields& f, const OrderedJson& body, OrderedJson& out) {
  out["parallel_tool_calls"] = f.flag("parallel_tool_calls", true);
  const OrderedJson* choice = given(body, "tool_choice");
  if (!choice) return true;
  if (choice->is_string()) {
    out["tool_choice"] = *choice;
    return true;
  }
  const std::string type = text_of_member(*choice, "type"), name = text_of_member(*choice, "name");
  if ((type != "function" && type != "custom") || name.empty())
    return wrong(f, "tool_choice",
                 "\"none\", \"auto\", \"required\", or an object with \"type\": \"function\" and a \"name\", is "
                 "expected");
  out["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  return true;
}

// What the answer is held to.
void read_text_format(Fields& f, const OrderedJson& body, ChatTools& tools, GenerateCall& call,
                      const ServedModel& model, const CallLimits& limits) {
  const OrderedJson* text = given(body, "text");
  if (!text) return;
  if (!text->is_object()) return f.fail("text", "an object is expected");
  if (const OrderedJson* verbosity = given(*text, "verbosity"); verbosity && *verbosity != "medium")
    warn(f, "text.verbosity", "is not honoured", call, limits);
  const OrderedJson* format = given(*text, "format");
  if (!format) return;
  const std::string type = text_of_member(*format, "type");
  if (type == "text") return;
  const OrderedJson* schema = given(*format, "schema");
  if (tools.form && (type == "json_object" || type == "json_schema"))
    return f.fail("tool_choice", "the answer cannot also be held to text.format");
  if (type == "json_object")
    return hold_to_or_call(f, "text.format", AnswerForm{AnswerForm::AnyObject{}}, tools, call, model);
  if (type == "json_schema" && schema && schema->is_object())
    return hold_to_or_call(f, "text.format", AnswerForm{AnswerForm::Schema{*schema}}, tools, call, model);
  f.fail("text.format",
         "an object with \"type\": \"text\", \"json_object\", or \"json_schema\" and a \"schema\", is expected");
}

void read_reasoning(Fields& f, GenerateCall& call, const ServedModel& model, const CallLimits& limits,
                    text::RenderOptions& options) {
  const Json* v = f.find("reasoning");
  if (!v) return;
  Fields reasoning(*v, "reasoning.");
  const auto effort = reasoning.maybe_text("effort");
  f.take(reasoning.error());
  if (!f.error() && effort && model.chat_template)
    set_effort(f, "reasoning.effort", *effort, call, model, limits, options);
}

void read_template_variables(Fields& f, const ServedModel& model, GenerateCall& call, const CallLimits& limits,
                             text::RenderOptions& options) {
  const Json* extra = f.find("chat_template_kwargs");
  if (!extra) return;
  if (!extra->is_object()) return f.fail("chat_template_kwargs", "an object is expected");
  set_variables(f, *extra, model, call, limits, options);
}

void read_logprobs(Fields& f, GenerateCall& call, const CallLimits& limits) {
  const auto top = f.maybe_integer("top_logprobs", 0, limits.most_logprobs);
  if (top.value_or(0) > 0) call.sampling.logprobs = static_cast<int>(*top);
  const Json* include = f.find("include");
  if (!include) return;
  if (!include->is_array()) return f.fail("include", "a list of strings is expected");
  for (const Json& what : *include) {
    if (!what.is_string()) return f.fail("include", "a list of strings is expected");
    if (what == "message.output_text.logprobs")
      call.sampling.logprobs = static_cast<int>(top.value_or(0));
    else if (what != "reasoning.encrypted_content")  // thoughts come as they are
      warn(f, "include." + what.get<std::string>().substr(0, 64), "is not here to be included", call, limits);
  }
}

// Nothing is kept between requests.
void refuse_state(Fields& f) {
  static constexpr const char* kNothingKept =
      "nothing is kept between requests: send the whole conversation as \"input\"";
  for (const char* name : {"previous_response_id", "conversation", "prompt"})
    if (f.has(name)) f.fail(name, kNothingKept);
  if (f.flag("background", false)) f.fail("background", "answers are not kept to be fetched later");
}

void read_response_sampling(Fields& f, GenerateCall& call, const ServedModel& model, const CallLimits& limits) {
  call.sampling = default_sampling(model);
  engine::SamplingParams& p = call.sampling;
  p.temperature = f.number("temperature", p.temperature, 0, 2);
  p.top_p = f.number("top_p", p.top_p, 0, 1);
  call.repeated["temperature"] = p.temperature;
  call.repeated["top_p"] = p.top_p;
  if (p.top_p == 0) p.top_p = 1e-9;  // the likeliest token alone
  p.top_k = f.integer("top_k", p.top_k, -1, kMany);
  p.min_p = f.number("min_p", p.min_p, 0, 1);
  p.repetition_penalty = f.number("repetition_penalty", p.repetition_penalty, 0.01, 10);
  if (const auto seed = f.maybe_integer("seed", INT64_MIN, INT64_MAX)) p.seed = static_cast<uint64_t>(*seed);
  read_stops(f, "stop", call, limits);
  const auto most = f.maybe_integer("max_output_tokens", 1, kMany);
  p.max_new_tokens = most.value_or(model.context_length);
  call.repeated["max_output_tokens"] = most ? OrderedJson(*most) : OrderedJson(nullptr);
  call.cache_salt = f.text("cache_salt", "");
  call.priority = limits.default_priority;
  call.stream = f.flag("stream", false);
}

// What the answer repeats of the request.
void repeat(const OrderedJson& body, GenerateCall& call) {
  const auto or_else = [&](const char* name, OrderedJson otherwise) {
    const OrderedJson* v = given(body, name);
    call.repeated[name] = v ? *v : std::move(otherwise);
  };
  or_else("instructions", nullptr);
  or_else("parallel_tool_calls", true);
  or_else("tool_choice", "auto");
  or_else("text", {{"format", {{"type", "text"}}}});
  or_else("reasoning", {{"effort", nullptr}, {"summary", nullptr}});
  or_else("metadata", OrderedJson::object());
}

}  // namespace

std::string joined_tool_name(const std::string& space, const std::string& name) {
  return space.empty() ? name : fmt::format("{}__{}", space, name);
}

ParsedCall parse_response(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  const Json plain = body;
  Fields f(plain);
  GenerateCall call;
  call.kind = CallKind::Chat;
  call.id = make_id("resp_");
  call.repeated = OrderedJson::object();
  warn_of_fields(f, body, FieldForm::Responses, "", call, limits);
  check_model(f, call, model);
  refuse_state(f);
  read_response_sampling(f, call, model, limits);
  read_logprobs(f, call, limits);
  if (const Json* metadata = f.find("metadata"); metadata && !metadata->is_object())
    f.fail("metadata", "an object is expected");
  check_chats(f, "input", model);
  OrderedJson chat = OrderedJson::object();
  if (f.error()) return *f.error();
  const auto given_tools = tools_of(f, body);
  OrderedJson functions = OrderedJson::array();
  if (!given_tools || !convert_response_tools(f, *given_tools, functions, call, limits) ||
      !convert_response_choice(f, body, chat))
    return *f.error();
  if (!given_tools->empty()) chat["tools"] = std::move(functions);
  const Json plain_chat = chat;
  Fields t(plain_chat);
  ChatTools tools = read_tools(t, chat, model);
  f.take(t.error());
  if (tools.form) hold_to(f, "tool_choice", *tools.form, call, model);
  read_text_format(f, body, tools, call, model, limits);
  text::RenderOptions options;
  options.add_generation_prompt = true;
  read_template_variables(f, model, call, limits, options);
  read_reasoning(f, call, model, limits, options);
  warn_of_tools(f, tools, call, limits);
  Conversation conversation(f, call, model, limits);
  if (f.error() || !conversation.read(body)) return *f.error();
  auto messages = read_turns(f, conversation.take(), model);
  if (messages) write_prompt(f, "input", {std::move(*messages), tools, std::move(options)}, call, model);
  check_call(f, call, model, limits, "input");
  if (f.error()) return *f.error();
  repeat(body, call);
  call.repeated["tools"] = *given_tools;
  return call;
}

}  // namespace reprise::server
