#include "capi/call.h"

#include <cmath>
#include <limits>

#include "base/close_names.h"
#include "base/log.h"
#include "server/call_reader.h"

namespace reprise::capi {
namespace {

using server::GenerateCall;
using server::ServedModel;

constexpr int32_t kMostAnswers = 65536;
constexpr size_t kMostStops = 1024, kMostBiases = size_t{1} << 20, kMostIds = size_t{1} << 24;

server::CallLimits limits() {
  server::CallLimits l;
  l.most_answers = kMostAnswers;
  l.token_budget = std::numeric_limits<int64_t>::max() / 4;
  l.most_stops = kMostStops;
  l.most_biases = kMostBiases;
  return l;
}

// Names of this interface for those of requests over HTTP.
std::string place_of(const std::string& param) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"n", "answers"},
      {"stop_token_ids", "sampling.stop_ids"},
      {"response_format", "sampling.form"},
      {"stop", "sampling.stop"},
      {"chat_template_kwargs", "chat.template_kwargs"}};
  for (const auto& [http, here] : kNames)
    if (param == http) return std::string(here);
  for (const char* field : {"tools", "tool_choice", "reasoning_effort", "parallel_tool_calls"})
    if (param.starts_with(field)) return "chat." + param;
  if (param.starts_with("input")) return "inputs" + param.substr(std::string_view("input").size());
  return param;
}

Failure parsed(GenerateCall& out, server::ParsedCall call) {
  if (const auto* refused = std::get_if<server::ApiError>(&call)) return failure_of(*refused);
  out = std::move(std::get<GenerateCall>(call));
  for (const server::FieldWarning& w : out.warnings) log::warning("{}", w.text);
  return {};
}

Failure wrong(std::string_view place, const std::string& why) {
  return {invalid("{}: {}", place, why), std::string(place)};
}

// The members of `chat` under the names that the parser of chats has for them.
Failure add_options(OrderedJson& body, const reprise_text& chat) {
  static constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
      {"tools", "tools"},
      {"tool_choice", "tool_choice"},
      {"parallel_tool_calls", "parallel_tool_calls"},
      {"template_kwargs", "chat_template_kwargs"},
      {"add_generation_prompt", "add_generation_prompt"},
      {"reasoning_effort", "reasoning_effort"},
      {"separate_reasoning", "separate_reasoning"}};
  std::string text;
  RETURN_IF_FAILURE(take_text(text, chat, "chat"));
  if (text.empty()) return {};
  auto options = parse_ordered_json(text, "chat");
  if (!options) return {options.status(), "chat"};
  if (!options->is_object()) return wrong("chat", "a JSON object is expected");
  std::vector<std::string_view> names;
  for (const auto& [name, field] : kOptions) names.push_back(name);
  for (const auto& [key, value] : options->items()) {
    const auto at = std::find(names.begin(), names.end(), key);
    if (at == names.end())
      return wrong("chat." + key, fmt::format("it is not an option of a chat{}; allowed: {}", close_names(key, names),
                                              fmt::join(names, ", ")));
    body[std::string(kOptions[at - names.begin()].second)] = value;
  }
  return {};
}

Failure add_messages(OrderedJson& body, const reprise_text& messages) {
  std::string text;
  RETURN_IF_FAILURE(take_text(text, messages, "messages"));
  auto list = parse_ordered_json(text, "messages");
  if (!list) return {list.status(), "messages"};
  body["messages"] = std::move(*list);
  return {};
}

// What the parsers read of the sampling: the rest is numbers, which need no JSON.
Failure add_sampling(OrderedJson& body, const reprise_sampling& s) {
  if (s.stop_count > kMostStops || (s.stop_count && !s.stop)) return wrong("sampling.stop", "it is NULL, or too many");
  if (s.stop_id_count > kMostBiases || (s.stop_id_count && !s.stop_ids))
    return wrong("sampling.stop_ids", "it is NULL, or too many");
  if (s.stop_count) body["stop"] = OrderedJson::array();
  for (size_t i = 0; i < s.stop_count; ++i) {
    std::string text;
    RETURN_IF_FAILURE(take_text(text, s.stop[i], "sampling.stop"));
    body["stop"].push_back(std::move(text));
  }
  if (s.stop_id_count) body["stop_token_ids"] = std::vector<int32_t>(s.stop_ids, s.stop_ids + s.stop_id_count);
  body["ignore_eos"] = (s.flags & REPRISE_IGNORE_EOS) != 0;
  body["skip_special_tokens"] = (s.flags & REPRISE_KEEP_SPECIAL) == 0;
  body["include_stop_str_in_output"] = (s.flags & REPRISE_KEEP_STOP) != 0;
  return {};
}

Failure form_of(std::optional<server::AnswerForm>& out, const reprise_sampling& s) {
  using server::AnswerForm;
  std::string text;
  RETURN_IF_FAILURE(take_text(text, s.form_text, "sampling.form_text"));
  switch (s.form) {
    case REPRISE_ANY_FORM: return {};
    case REPRISE_JSON: out = AnswerForm{AnswerForm::AnyObject{}}; return {};
    case REPRISE_REGEX: out = AnswerForm{AnswerForm::Regex{std::move(text)}}; return {};
    case REPRISE_JSON_SCHEMA:
    case REPRISE_CHOICE: break;
    case REPRISE_EBNF:
      return {Status(Code::Unsupported,
                     "sampling.form: EBNF grammars are not read yet; a regular expression or a JSON "
                     "schema may say the same"),
              "sampling.form"};
    default: return wrong("sampling.form", fmt::format("{} is not known; allowed: 0 to {}", s.form, int{REPRISE_EBNF}));
  }
  auto json = parse_ordered_json(text, "sampling.form_text");
  if (!json) return {json.status(), "sampling.form_text"};
  if (s.form == REPRISE_JSON_SCHEMA) {
    out = AnswerForm{AnswerForm::Schema{std::move(*json)}};
    return {};
  }
  AnswerForm::Choice choice;
  for (const OrderedJson& e : *json) {
    if (!json->is_array() || !e.is_string()) break;
    choice.texts.push_back(e.get<std::string>());
  }
  if (choice.texts.empty() || choice.texts.size() != json->size())
    return wrong("sampling.form_text", "a JSON list of at least one text is expected");
  out = AnswerForm{std::move(choice)};
  return {};
}

void set(double& out, double given) {
  if (!std::isnan(given)) out = given;
}

Failure apply(Call& out, const reprise_sampling& s, const ServedModel& model, uint64_t random_seed) {
  engine::SamplingParams& p = out.call.sampling;
  set(p.temperature, s.temperature);
  set(p.top_p, s.top_p);
  set(p.min_p, s.min_p);
  set(p.repetition_penalty, s.repetition_penalty);
  set(p.presence_penalty, s.presence_penalty);
  set(p.frequency_penalty, s.frequency_penalty);
  if (s.top_k != INT64_MIN) p.top_k = s.top_k;
  p.max_new_tokens = s.max_tokens == INT64_MIN ? engine::SamplingParams().max_new_tokens : s.max_tokens;
  p.min_new_tokens = s.min_tokens == INT64_MIN ? 0 : s.min_tokens;
  p.seed = s.flags & REPRISE_SEEDED ? s.seed : random_seed;
  if (s.bias_count > kMostBiases || (s.bias_count && !s.bias)) return wrong("sampling.bias", "it is NULL, or too many");
  for (size_t i = 0; i < s.bias_count; ++i) p.logit_bias.emplace_back(s.bias[i].id, s.bias[i].value);
  out.logprobs = s.logprobs;
  out.prompt_logprobs = s.prompt_logprobs;
  if (s.prompt_logprobs < -1 || s.prompt_logprobs > model.vocab_size)
    return wrong("sampling.prompt_logprobs",
                 fmt::format("it is {}; allowed: -1 to {}", s.prompt_logprobs, model.vocab_size));
  p.logprobs = std::max(s.logprobs, s.prompt_logprobs);
  if (s.logprobs < -1) p.logprobs = s.logprobs;
  const Status ok = p.check(model.vocab_size);
  if (!ok.is_ok()) return {ok.at("sampling"), "sampling." + ok.message().substr(0, ok.message().find(' '))};
  std::optional<server::AnswerForm> form;
  RETURN_IF_FAILURE(form_of(form, s));
  if (!form) return {};
  if (out.call.grammar) return wrong("sampling.form", "chat.tool_choice holds the answer to a form already");
  if (!model.grammars) return wrong("sampling.form", "this model has no tokenizer, so its answers have no form");
  const bool json = s.form == REPRISE_JSON || s.form == REPRISE_JSON_SCHEMA;
  if (const auto& split = out.call.split; json && split.list && !split.list->is_null()) {
    if (!server::has_call_form(split.tools))
      return wrong("sampling.form",
                   "this model's calls of tools have no form; allowed with chat.tools: tool_choice none");
    form->calls = server::CallForm{split.tools, *split.list};
    out.call.split.calls_alone = true;
    out.call.split.harmony = false;
  }
  auto masks = model.grammars->masks(*form);
  if (!masks) return {masks.status().at("sampling.form_text"), "sampling.form_text"};
  out.call.grammar = std::move(*masks);
  return {};
}

Failure read_prompt(GenerateCall& out, const reprise_request& r, OrderedJson body, const ServedModel& model) {
  const int given = (r.id_count != 0) + (r.prompt.size != 0) + (r.messages.size != 0);
  if (given != 1) return wrong("prompt", fmt::format("one of ids, prompt and messages is expected, not {}", given));
  if (r.messages.size) {
    RETURN_IF_FAILURE(add_messages(body, r.messages));
    RETURN_IF_FAILURE(add_options(body, r.chat));
    return parsed(out, server::parse_chat(body, model, limits()));
  }
  if (r.chat.size) return wrong("chat", "options of a chat need messages");
  if (r.id_count) {
    if (!r.ids || r.id_count > kMostIds) return wrong("ids", "it is NULL, or too many");
    body["prompt"] = std::vector<int32_t>(r.ids, r.ids + r.id_count);
  } else {
    std::string text;
    RETURN_IF_FAILURE(take_text(text, r.prompt, "prompt"));
    body["prompt"] = std::move(text);
  }
  return parsed(out, server::parse_completion(body, model, limits()));
}

}  // namespace

Failure failure_of(const server::ApiError& e) {
  const Code code = e.status == 404 ? Code::NotFound : e.status >= 500 ? Code::Internal : Code::Invalid;
  const std::string place = place_of(e.param);
  return {Status(code, place.empty() ? e.message : fmt::format("{}: {}", place, e.message)), place};
}

reprise_sampling default_sampling() {
  constexpr double kModelsOwn = std::numeric_limits<double>::quiet_NaN();
  reprise_sampling s{};
  s.size = sizeof s;
  s.temperature = s.top_p = s.min_p = s.repetition_penalty = s.presence_penalty = s.frequency_penalty = kModelsOwn;
  s.top_k = s.max_tokens = s.min_tokens = INT64_MIN;
  s.logprobs = s.prompt_logprobs = -1;
  return s;
}

Failure take_text(std::string& out, const reprise_text& given, const char* name) {
  if (given.size && !given.data) return {invalid("{}: its data is NULL and its size {}", name, given.size), name};
  out.assign(given.size ? given.data : "", given.size);
  return {};
}

Failure read_call(Call& out, const reprise_request* request, const ServedModel& model, uint64_t random_seed) {
  reprise_request r{};
  RETURN_IF_FAILURE(take(r, request, "request"));
  if (model.pooled_size > 0)
    return error(Code::Unsupported, "\"{}\" gives {}, and writes no text", model.name,
                 model.pooling.gives_vectors() ? "vectors" : "scores of documents");
  reprise_sampling sampling = default_sampling();
  if (r.sampling) RETURN_IF_FAILURE(take(sampling, r.sampling, "sampling"));
  std::string adapter, name, salt;
  RETURN_IF_FAILURE(take_text(adapter, r.adapter, "adapter"));
  RETURN_IF_FAILURE(take_text(name, r.name, "name"));
  RETURN_IF_FAILURE(take_text(salt, r.cache_salt, "cache_salt"));
  if (r.answers < 0 || r.answers > kMostAnswers)
    return wrong("answers", fmt::format("{} is out of range; allowed: 0 to {}", r.answers, kMostAnswers));
  if (!(r.deadline_s >= 0 && r.deadline_s <= server::kLongestTimeout))
    return wrong("deadline_s",
                 fmt::format("{} is out of range; allowed: 0 (none) to {:g}", r.deadline_s, server::kLongestTimeout));
  OrderedJson body = OrderedJson::object();
  RETURN_IF_FAILURE(add_sampling(body, sampling));
  RETURN_IF_FAILURE(read_prompt(out.call, r, std::move(body), model));
  RETURN_IF_FAILURE(apply(out, sampling, model, random_seed));
  GenerateCall& c = out.call;
  c.n = std::max(1, r.answers);
  if (!adapter.empty()) {
    if (!model.adapters)
      return {error(Code::Unsupported,
                    "adapter: the model was opened without slots for adapters; `enable_lora` keeps some"),
              "adapter"};
    c.adapter = model.adapters->find(adapter);
    if (!c.adapter)
      return {error(Code::NotFound, "adapter: \"{}\" is not loaded; allowed: {}", adapter, server::served_names(model)),
              "adapter"};
  }
  c.priority = r.priority;
  c.cache_salt = std::move(salt);
  if (!name.empty()) c.id = std::move(name);
  if (r.deadline_s > 0)
    c.deadline = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                        std::chrono::duration<double>(r.deadline_s));
  out.context = r.context;
  return {};
}

Failure encode_chat(std::vector<int32_t>& out, const reprise_text& messages, const reprise_text& options,
                    const ServedModel& model) {
  OrderedJson body = OrderedJson::object();
  RETURN_IF_FAILURE(add_messages(body, messages));
  RETURN_IF_FAILURE(add_options(body, options));
  GenerateCall call;
  RETURN_IF_FAILURE(parsed(call, server::parse_chat(body, model, limits())));
  if (!call.images.empty())
    return {invalid("messages: ids alone do not show images; allowed: texts (a request with messages takes images)"),
            "messages"};
  out = std::move(call.prompts.front());
  return {};
}

}  // namespace reprise::capi
