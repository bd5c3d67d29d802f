#include "server/ollama_reader.h"

#include "server/call_reader.h"
#include "server/ids.h"
#include "server/image_reader.h"

namespace reprise::server {
namespace {

void read_model(Fields& f, GenerateCall& call, const ServedModel& model) {
  const auto name = f.maybe_text("model");
  call.model_name = name.value_or(model.name);
  if (f.error() || names_served_model(call.model_name, model)) return;
  check_model(f, call, model);
}

void read_options(Fields& f, const OrderedJson& body, GenerateCall& call, const ServedModel& model,
                  const CallLimits& limits) {
  engine::SamplingParams& p = call.sampling;
  p.max_new_tokens = model.context_length;
  const Json* options = f.find("options");
  if (!options) return;
  Fields o(*options, "options.");
  if (options->is_object()) warn_of_fields(o, body["options"], FieldForm::OllamaOptions, "options.", call, limits);
  p.temperature = o.number("temperature", p.temperature, 0, 2);
  p.top_p = o.number("top_p", p.top_p, 0, 1);
  if (p.top_p == 0) p.top_p = 1e-9;  // the likeliest token alone
  p.top_k = o.integer("top_k", p.top_k, -1, kMany);
  p.min_p = o.number("min_p", p.min_p, 0, 1);
  p.repetition_penalty = o.number("repeat_penalty", p.repetition_penalty, 0.01, 10);
  p.presence_penalty = o.number("presence_penalty", 0, -2, 2);
  p.frequency_penalty = o.number("frequency_penalty", 0, -2, 2);
  if (const auto seed = o.maybe_integer("seed", INT64_MIN, INT64_MAX)) p.seed = static_cast<uint64_t>(*seed);
  // Without a bound, or up to the end of the context: what is not positive.
  if (const int64_t most = o.integer("num_predict", -1, -2, kMany); most > 0) p.max_new_tokens = most;
  read_stops(o, "stop", call, limits);
  f.take(o.error());
}

// "json", a schema, or nothing.
void read_format(Fields& f, const OrderedJson& body, ChatTools& tools, GenerateCall& call, const ServedModel& model) {
  const OrderedJson* format = given(body, "format");
  if (!format || *format == "") return;
  AnswerForm form{AnswerForm::AnyObject{}};
  if (format->is_object())
    form.what = AnswerForm::Schema{*format};
  else if (*format != "json")
    return f.fail("format", "\"json\" or a JSON schema is expected");
  hold_to_or_call(f, "format", std::move(form), tools, call, model);
}

void read_think(Fields& f, GenerateCall& call, const ServedModel& model, const CallLimits& limits,
                text::RenderOptions& options) {
  const Json* think = f.find("think");
  if (!think) return;
  if (think->is_string()) return set_effort(f, "think", think->get<std::string>(), call, model, limits, options);
  if (!think->is_boolean()) return f.fail("think", "true, false, or how much as a string is expected");
  const bool on = think->get<bool>();
  if (!set_thinking(on, model, options) && on && !model.reasoning)
    warn(f, "think", "is not used by this model's chat template", call, limits);
}

// The images of a turn, which are strings; null: there are none.
const OrderedJson* find_images(Fields& f, const OrderedJson& object) {
  const OrderedJson* images = given(object, "images");
  if (!images || (images->is_array() && images->empty())) return nullptr;
  if (!images->is_array()) f.fail("images", "a list of images in base64 is expected");
  for (size_t i = 0; images->is_array() && i < images->size(); ++i)
    if (!(*images)[i].is_string()) f.fail(fmt::format("images[{}]", i), "a string is expected");
  return f.error() ? nullptr : images;
}

// What a turn shows: its images stand in front of its text, as Ollama has them where a text does not say.
OrderedJson shown(Fields& f, const OrderedJson& object, std::string text, ImageReader& reader) {
  const OrderedJson* images = find_images(f, object);
  if (!images) return text;
  OrderedJson parts = OrderedJson::array();
  for (size_t i = 0; i < images->size(); ++i) {
    if (!reader.add_base64(f, (*images)[i].get_ref<const std::string&>(), fmt::format("images[{}]", i))) return text;
    parts.push_back(ImageReader::part());
  }
  if (!text.empty()) parts.push_back({{"type", "text"}, {"text", std::move(text)}});
  return parts;
}

// What both routes begin with.
GenerateCall begin(Fields& f, const OrderedJson& body, FieldForm form, const ServedModel& model,
                   const CallLimits& limits) {
  GenerateCall call;
  call.kind = CallKind::Chat;
  call.id = make_id("ollama-");
  warn_of_fields(f, body, form, "", call, limits);
  read_model(f, call, model);
  call.sampling = default_sampling(model);
  call.priority = limits.default_priority;
  read_options(f, body, call, model, limits);
  call.stream = f.flag("stream", true);
  const auto top = f.maybe_integer("top_logprobs", 0, limits.most_logprobs);
  if (f.flag("logprobs", false)) call.sampling.logprobs = static_cast<int>(top.value_or(0));
  return call;
}

ParsedCall result(Fields& f, GenerateCall call, const ServedModel& model, const CallLimits& limits, const char* name) {
  check_call(f, call, model, limits, name);
  if (f.error()) return *f.error();
  return call;
}

// The messages as OpenAI's chats have them.
std::optional<OrderedJson> convert_turns(Fields& f, const OrderedJson& list, ImageReader& images) {
  OrderedJson out = OrderedJson::array();
  if (!list.is_array()) {
    f.fail("messages", "a list of messages is expected");
    return std::nullopt;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const OrderedJson& m = list[i];
    const Json plain = m;
    Fields fields(plain, fmt::format("messages[{}].", i));
    OrderedJson turn = {{"role", fields.text("role", "")}, {"content", fields.text("content", "")}};
    if (turn["role"] == "") fields.fail("role", "a string is expected");
    if (m.is_object()) turn["content"] = shown(fields, m, turn["content"].get<std::string>(), images);
    if (const auto thought = fields.maybe_text("thinking"); thought && !thought->empty())
      turn["reasoning_content"] = *thought;
    if (const auto name = fields.maybe_text("tool_name")) turn["name"] = *name;
    if (const auto id = fields.maybe_text("tool_call_id")) turn["tool_call_id"] = *id;
    const Json* calls = fields.find("tool_calls");
    if (calls && !calls->is_null() && *calls != Json::array()) turn["tool_calls"] = m["tool_calls"];
    f.take(fields.error());
    if (f.error()) return std::nullopt;
    out.push_back(std::move(turn));
  }
  return out;
}

// Ollama's clients may leave out the type of a tool.
OrderedJson typed_tools(const OrderedJson& tools) {
  OrderedJson out = tools;
  if (out.is_array())
    for (OrderedJson& t : out)
      if (t.is_object() && !given(t, "type")) t["type"] = "function";
  return out;
}

void write_turns(Fields& f, const char* field, const OrderedJson& turns, const ChatTools& tools,
                 text::RenderOptions options, GenerateCall& call, const ServedModel& model) {
  auto messages = read_turns(f, turns, model);
  if (messages) write_prompt(f, field, {std::move(*messages), tools, std::move(options)}, call, model);
}

}  // namespace

bool names_served_model(std::string_view name, const ServedModel& model) {
  constexpr std::string_view kLatest = ":latest";
  if (name == model.name || name == model.path) return true;
  return name.ends_with(kLatest) && name.substr(0, name.size() - kLatest.size()) == model.name;
}

ParsedCall parse_ollama_chat(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  const Json plain = body;
  Fields f(plain);
  GenerateCall call = begin(f, body, FieldForm::OllamaChat, model, limits);
  text::RenderOptions options;
  options.add_generation_prompt = true;
  read_think(f, call, model, limits, options);
  OrderedJson chat = OrderedJson::object();
  if (const OrderedJson* tools = given(body, "tools")) chat["tools"] = typed_tools(*tools);
  const Json plain_chat = chat;
  Fields t(plain_chat);
  ChatTools tools = read_tools(t, chat, model);
  f.take(t.error());
  read_format(f, body, tools, call, model);
  const OrderedJson* list = given(body, "messages");
  if (!f.error() && (!list || (list->is_array() && list->empty()))) {
    call.nothing = true;
    return call;
  }
  check_chats(f, "messages", model);
  if (f.error()) return *f.error();
  ImageReader images(call, model, limits);
  const auto turns = convert_turns(f, *list, images);
  if (turns && !f.error()) write_turns(f, "messages", *turns, tools, std::move(options), call, model);
  return result(f, std::move(call), model, limits, "messages");
}

ParsedCall parse_ollama_generate(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  const Json plain = body;
  Fields f(plain);
  GenerateCall call = begin(f, body, FieldForm::OllamaGenerate, model, limits);
  ChatTools none;
  read_format(f, body, none, call, model);
  const std::string prompt = f.text("prompt", ""), system = f.text("system", "");
  const bool raw = f.flag("raw", false);
  text::RenderOptions options;
  options.add_generation_prompt = true;
  read_think(f, call, model, limits, options);
  if (!f.text("suffix", "").empty()) f.fail("suffix", "text after the answer is not supported");
  if (!f.text("template", "").empty())
    f.fail("template", "templates are not taken from requests; raw takes the prompt as it is");
  if (const Json* context = f.find("context"); context && !(context->is_array() && context->empty()))
    f.fail("context", "nothing is kept between requests; /api/chat takes the conversation");
  if (!model.tokenizer) f.fail("prompt", "this model has no tokenizer");
  find_images(f, body);  // also where no prompt asks for anything
  if (f.error()) return *f.error();
  if (prompt.empty()) {
    call.nothing = true;
    return call;
  }
  ImageReader images(call, model, limits);
  const OrderedJson content = shown(f, body, prompt, images);
  if (!raw) {
    check_chats(f, "prompt", model);
    if (f.error()) return *f.error();
    OrderedJson turns = OrderedJson::array({{{"role", "user"}, {"content", content}}});
    if (!system.empty()) turns.insert(turns.begin(), OrderedJson{{"role", "system"}, {"content", system}});
    write_turns(f, "prompt", turns, {}, std::move(options), call, model);
    return result(f, std::move(call), model, limits, "prompt");
  }
  call.kind = CallKind::Completion;
  if (fits_context(f, "prompt", prompt, model)) {
    auto ids = model.tokenizer->encode(prompt);
    if (!ids) return ApiError::from(ids.status());
    call.prompts.push_back(std::move(*ids));
    call.prompt_texts.push_back(prompt);
    place_images(f, "images", call, model);
  }
  return result(f, std::move(call), model, limits, "prompt");
}

}  // namespace reprise::server
