#include "server/generate_call.h"

#include <set>

#include "server/answer_form.h"
#include "server/call_reader.h"
#include "server/chat_tools.h"
#include "server/fields.h"
#include "server/ids.h"
#include "server/image_reader.h"
#include "spec/options.h"

namespace reprise::server {
namespace {

constexpr int64_t kCompletionTokens = 16;  // the default of OpenAI's /v1/completions
constexpr size_t kMostPromptIds = 1 << 24;

void read_bias(Fields& f, engine::SamplingParams& p, const ServedModel& model, const CallLimits& limits) {
  const Json* v = f.find("logit_bias");
  if (!v) return;
  if (!v->is_object() || v->size() > limits.most_biases)
    return f.fail("logit_bias", fmt::format("an object of at most {} token ids is expected", limits.most_biases));
  for (const auto& [key, bias] : v->items()) {
    if (bias.is_null()) continue;
    int64_t id = -1;
    const bool digits = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (digits) id = std::stoll(key);
    if (id < 0 || id >= model.vocab_size || !bias.is_number() || !(bias >= -100 && bias <= 100))
      return f.fail("logit_bias", fmt::format("token ids from 0 to {} with a number from -100 to 100 are expected",
                                              model.vocab_size - 1));
    p.logit_bias.emplace_back(static_cast<int32_t>(id), bias.get<float>());
  }
}

// "speculative": false, or {"num_draft_tokens": n}.
void read_speculative(Fields& f, GenerateCall& call) {
  const Json* v = f.find("speculative");
  if (!v) return;
  if (v->is_boolean()) {
    if (!v->get<bool>()) call.draft_tokens = 1;
    return;
  }
  if (!v->is_object())
    return f.fail("speculative", "true, false or an object like {\"num_draft_tokens\": 4} is expected");
  for (const auto& [key, value] : v->items())
    if (key != "num_draft_tokens") f.fail("speculative." + key, "it is not known; there is num_draft_tokens");
  Fields fields(*v, f.name_of("speculative."));
  call.draft_tokens = fields.maybe_integer("num_draft_tokens", 1, spec::SpecOptions::kMostDraftTokens);
  f.take(fields.error());
}

// The fields that all forms share, under the names that all give them.
void read_sampling(Fields& f, GenerateCall& call, const ServedModel& model, const CallLimits& limits) {
  engine::SamplingParams& p = call.sampling;
  const checkpoint::SamplingDefaults d = checkpoint::sampling_defaults(model.defaults);
  p.temperature = f.number("temperature", d.temperature, 0, 2);
  p.top_p = f.number("top_p", d.top_p, 0, 1);
  if (p.top_p == 0) p.top_p = 1e-9;  // the likeliest token alone
  p.top_k = f.integer("top_k", d.top_k, -1, kMany);
  p.min_p = f.number("min_p", d.min_p, 0, 1);
  p.repetition_penalty = f.number("repetition_penalty", d.repetition_penalty, 0.01, 10);
  p.presence_penalty = f.number("presence_penalty", 0, -2, 2);
  p.frequency_penalty = f.number("frequency_penalty", 0, -2, 2);
  auto seed = f.maybe_integer("seed", INT64_MIN, INT64_MAX);
  if (const auto sglang = f.maybe_integer("sampling_seed", INT64_MIN, INT64_MAX); sglang && !seed) seed = sglang;
  p.seed = seed ? static_cast<uint64_t>(*seed) : random_bits();
  p.ignore_eos = f.flag("ignore_eos", false);
  p.stop = f.texts("stop", limits.most_stops);
  for (const std::string& s : p.stop)
    if (s.empty()) f.fail("stop", "an empty string would stop everywhere");
  p.stop_token_ids = f.ids("stop_token_ids", limits.most_biases, model.vocab_size);
  if (!p.ignore_eos)
    for (int64_t id : model.defaults.eos_token_ids) p.stop_token_ids.push_back(static_cast<int32_t>(id));
  read_bias(f, p, model, limits);
  call.n = f.integer("n", 1, 1, limits.most_answers);
  if (f.integer("best_of", call.n, 1, limits.most_answers) != call.n)
    f.fail("best_of", "only the value of n is supported");
  call.skip_special_tokens = f.flag("skip_special_tokens", true);
  call.include_stop = f.flag("include_stop_str_in_output", f.flag("no_stop_trim", false));
  call.priority = f.integer("priority", limits.default_priority, -1000000, 1000000);
  call.cache_salt = f.text("cache_salt", "");
  read_speculative(f, call);
  call.stream = f.flag("stream", call.stream);
}

// OpenAI's predicted outputs: {"type": "content", "content": a text, or parts of type "text"}.
void read_prediction(Fields& f, GenerateCall& call, const ServedModel& model) {
  const Json* v = f.find("prediction");
  if (!v || f.error()) return;
  const auto type = v->is_object() ? v->find("type") : v->end();
  if (!v->is_object() || type == v->end() || *type != "content")
    return f.fail("prediction", "an object of type \"content\" is expected");
  const auto content = v->find("content");
  std::string text;
  if (content != v->end() && content->is_string()) {
    text = content->get<std::string>();
  } else if (content != v->end() && content->is_array()) {
    for (const Json& part : *content) {
      if (!part.is_object() || part.value("type", Json()) != "text" || !part.value("text", Json()).is_string())
        return f.fail("prediction.content", "parts of type \"text\" are expected");
      text += part["text"].get<std::string>();
    }
  } else {
    return f.fail("prediction.content", "a text or a list of parts of type \"text\" is expected");
  }
  if (!model.tokenizer) return;
  // What is longer than any answer can be is not read.
  constexpr size_t kMostBytesOfToken = 64;
  size_t size = std::min(text.size(), kMostBytesOfToken * static_cast<size_t>(model.context_length));
  while (size < text.size() && size > 0 && (static_cast<uint8_t>(text[size]) & 0xc0) == 0x80) --size;
  text.resize(size);
  auto ids = model.tokenizer->encode(text, {.add_special_tokens = false});
  if (!ids) return f.take(ApiError::from(ids.status()));
  call.prediction = std::move(*ids);
  call.predicts = true;
}

void read_stream_options(Fields& f, GenerateCall& call) {
  const Json* v = f.find("stream_options");
  if (!v) return;
  if (!call.stream) return f.fail("stream_options", "it needs \"stream\": true");
  Fields options(*v, f.name_of("stream_options."));
  call.include_usage = options.flag("include_usage", false);
  call.continuous_usage = options.flag("continuous_usage_stats", false);
  f.take(options.error());
}

void read_grammar(Fields& f, const OrderedJson& body, GenerateCall& call, const ServedModel& model) {
  if (const auto form = read_answer_form(f, body)) hold_to(f, "response_format", *form, call, model);
}

void set_length(Fields& f, GenerateCall& call, const char* name, std::optional<int64_t> most, int64_t otherwise) {
  engine::SamplingParams& p = call.sampling;
  call.no_answer = most == 0;
  p.max_new_tokens = std::max<int64_t>(1, most.value_or(otherwise));
  p.min_new_tokens = f.integer("min_tokens", f.integer("min_new_tokens", 0, 0, kMany), 0, kMany);
  if (p.min_new_tokens > p.max_new_tokens) f.fail("min_tokens", fmt::format("it is larger than {}", name));
}

constexpr size_t kLongestId = 256;

std::string read_id(Fields& f, const char* name, std::string otherwise) {
  std::string id = f.text(name, "");
  if (id.size() > kLongestId) f.fail(name, fmt::format("at most {} bytes are expected", kLongestId));
  return id.empty() ? std::move(otherwise) : id;
}

// SGLang's rid: of one prompt, or by prompt; a text for several prompts begins the id of each.
void read_rid(Fields& f, GenerateCall& call) {
  const Json* rid = f.find("rid");
  const size_t prompts = call.prompts.size();
  if (rid && rid->is_array()) {
    call.prompt_ids = f.texts("rid", prompts);
    if (!f.error() && call.prompt_ids.size() != prompts)
      f.fail("rid", fmt::format("an id for each of the {} prompts is expected, not {}", prompts, rid->size()));
    const std::set<std::string> different(call.prompt_ids.begin(), call.prompt_ids.end());
    for (const std::string& id : call.prompt_ids)
      if (id.empty() || id.size() > kLongestId)
        f.fail("rid", fmt::format("ids of 1 to {} bytes are expected", kLongestId));
    if (different.size() != call.prompt_ids.size()) f.fail("rid", "two prompts have the same id");
    call.id = make_id("");
    return;
  }
  call.id = read_id(f, "rid", make_id(""));
  if (call.several_prompts)
    for (size_t i = 0; i < prompts; ++i) call.prompt_ids.push_back(fmt::format("{}_{}", call.id, i));
}

// What OpenAI's two forms begin with.
GenerateCall begin_call(Fields& f, const OrderedJson& body, CallKind kind, const char* id, const ServedModel& model,
                        const CallLimits& limits) {
  GenerateCall call;
  call.kind = kind;
  warn_of_fields(f, body, kind == CallKind::Chat ? FieldForm::Chat : FieldForm::Completion, "", call, limits);
  // SGLang's name and vLLM's.
  const std::string given = read_id(f, "request_id", "");
  call.id = read_id(f, "rid", given.empty() ? make_id(id) : id + given);
  check_model(f, call, model);
  read_adapter(f, call, model);
  read_sampling(f, call, model, limits);
  read_stream_options(f, call);
  call.token_ids = f.flag("return_token_ids", false);
  call.timeout_s = f.maybe_number("timeout", kShortestTimeout, kLongestTimeout);
  return call;
}

ParsedCall result(Fields& f, GenerateCall call) {
  if (f.error()) return *f.error();
  return call;
}

// A text, a list of texts, a list of ids, or a list of lists of ids.
void read_prompts(Fields& f, const char* name, const Json* v, GenerateCall& call, const ServedModel& model,
                  const CallLimits& limits) {
  const auto wrong = [&] {
    f.fail(name, "a string, a list of strings, a list of token ids, or a list of such lists is expected");
  };
  if (!v) return f.fail(name, "it is required");
  const auto add_text = [&](const std::string& text) {
    if (!model.tokenizer) return f.fail(name, "this model has no tokenizer; give token ids");
    if (!fits_context(f, name, text, model)) return;
    auto ids = model.tokenizer->encode(text);
    if (!ids) return f.take(ApiError::from(ids.status()));
    call.prompts.push_back(std::move(*ids));
    call.prompt_texts.push_back(text);
  };
  const auto add_ids = [&](const Json& list) {
    std::vector<int32_t> ids;
    if (list.size() > kMostPromptIds) return wrong();
    for (const Json& id : list) {
      if (!id.is_number_integer() || id < 0 || id >= model.vocab_size)
        return f.fail(name, fmt::format("token ids from 0 to {} are expected", model.vocab_size - 1));
      ids.push_back(id.get<int32_t>());
    }
    auto text = model.tokenizer && call.echo ? model.tokenizer->decode(ids) : Result<std::string>(std::string());
    if (!text) return f.take(ApiError::from(text.status()));
    call.prompts.push_back(std::move(ids));
    call.prompt_texts.push_back(std::move(*text));
  };
  if (v->is_string()) return add_text(v->get<std::string>());
  if (!v->is_array()) return wrong();
  if (v->empty()) return f.fail(name, "the list is empty");
  if (v->front().is_number()) return add_ids(*v);
  call.several_prompts = true;
  if (static_cast<int64_t>(v->size()) > limits.most_answers)
    return f.fail(name, fmt::format("{} prompts are more than {} in one request", v->size(), limits.most_answers));
  for (const Json& e : *v) {
    if (f.error()) return;
    if (e.is_string())
      add_text(e.get<std::string>());
    else if (e.is_array())
      add_ids(e);
    else
      return wrong();
  }
}

}  // namespace

ParsedCall parse_completion(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  const Json plain = body;
  Fields f(plain);
  GenerateCall call = begin_call(f, body, CallKind::Completion, "cmpl-", model, limits);
  set_length(f, call, "max_tokens", f.maybe_integer("max_tokens", 0, kMany), kCompletionTokens);
  call.echo = f.flag("echo", false);
  call.sampling.logprobs = static_cast<int>(f.integer("logprobs", -1, 0, limits.most_logprobs));
  read_grammar(f, body, call, model);
  if (f.has("suffix") && !f.text("suffix", "").empty()) f.fail("suffix", "text after the answer is not supported");
  read_prompts(f, "prompt", f.find("prompt"), call, model, limits);
  check_call(f, call, model, limits, "prompt");
  return result(f, std::move(call));
}

ParsedCall parse_native(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  const Json plain = body;
  Fields f(plain);
  GenerateCall call;
  call.kind = CallKind::Native;
  warn_of_fields(f, body, FieldForm::Native, "", call, limits);
  read_adapter(f, call, model);
  call.stream = f.flag("stream", false);
  const auto priority = f.maybe_integer("priority", -1000000, 1000000);
  call.timeout_s = f.maybe_number("timeout", kShortestTimeout, kLongestTimeout);
  static const Json nothing = Json::object();
  const Json* params = f.find("sampling_params");
  Fields p(params ? *params : nothing, "sampling_params.");
  read_sampling(p, call, model, limits);
  if (priority) call.priority = *priority;  // SGLang has it outside the sampling parameters
  set_length(p, call, "max_new_tokens", p.maybe_integer("max_new_tokens", 0, kMany), 128);
  if (params && params->is_object()) {
    warn_of_fields(p, body["sampling_params"], FieldForm::NativeSampling, "sampling_params.", call, limits);
    read_grammar(p, body["sampling_params"], call, model);
  }
  f.take(p.error());
  const int64_t top = f.integer("top_logprobs_num", 0, 0, limits.most_logprobs);
  if (f.flag("return_logprob", false)) call.sampling.logprobs = static_cast<int>(top);
  const bool ids = f.has("input_ids");
  if (ids && f.has("text")) f.fail("input_ids", "give text or input_ids, not both");
  read_prompts(f, ids ? "input_ids" : "text", f.find(ids ? "input_ids" : "text"), call, model, limits);
  read_rid(f, call);
  check_call(f, call, model, limits, ids ? "input_ids" : "text");
  return result(f, std::move(call));
}

namespace {

// As vLLM takes it: media_io_kwargs.video.fps, or mm_processor_kwargs.fps, where a list has one for each video.
ImageReader::RequestFps video_fps(Fields& f, const OrderedJson& body, GenerateCall& call, const CallLimits& limits) {
  ImageReader::RequestFps out;
  const auto read = [&](const OrderedJson* of, const std::string& at) {
    if (!of) return;
    if (!of->is_object()) return f.fail(at, "an object is expected");
    for (const auto& [name, value] : of->items()) {
      if (name != "fps") {
        // Frames that come as they are to be seen are not sampled again.
        if (name != "do_sample_frames" || value != false)
          warn(f, f.name_of(at + "." + name), "is not honoured", call, limits);
        continue;
      }
      out = {{}, at + ".fps"};
      for (const OrderedJson& fps : value.is_array() ? value : OrderedJson::array({value})) {
        if (!fps.is_number()) return f.fail(out.at, "a number or a list of numbers is expected");
        out.each.push_back(fps.get<double>());
        if (const Status good = sched::check_fps(out.each.back()); !good.is_ok()) return f.fail(out.at, good.message());
      }
      if (out.each.empty()) return f.fail(out.at, "a number, or one for each video, is expected");
    }
  };
  const OrderedJson* media = given(body, "media_io_kwargs");
  if (media && !media->is_object()) f.fail("media_io_kwargs", "an object is expected");
  if (media && media->is_object())
    for (const auto& [kind, of] : media->items()) {
      if (kind == "video")
        read(&of, "media_io_kwargs.video");
      else
        warn(f, f.name_of("media_io_kwargs." + kind), "is not honoured", call, limits);
    }
  read(given(body, "mm_processor_kwargs"), "mm_processor_kwargs");
  return out;
}

}  // namespace

ParsedCall parse_chat(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) {
  const Json plain = body;
  Fields f(plain);
  GenerateCall call = begin_call(f, body, CallKind::Chat, "chatcmpl-", model, limits);
  const auto most = f.maybe_integer("max_tokens", 1, kMany);
  read_prediction(f, call, model);
  set_length(f, call, "max_completion_tokens",
             f.has("max_completion_tokens") ? f.maybe_integer("max_completion_tokens", 1, kMany) : most,
             model.context_length);
  const auto top = f.maybe_integer("top_logprobs", 0, limits.most_logprobs);
  if (f.flag("logprobs", false))
    call.sampling.logprobs = static_cast<int>(top.value_or(0));
  else if (top.value_or(0) > 0)
    f.fail("top_logprobs", "it needs \"logprobs\": true");
  check_chats(f, "messages", model);
  ChatTools tools = read_tools(f, body, model);
  if (tools.form) {
    if (read_answer_form(f, body)) f.fail("tool_choice", "the answer cannot also be held to response_format");
    hold_to(f, "tool_choice", *tools.form, call, model);
  } else if (auto form = read_answer_form(f, body)) {
    hold_to_or_call(f, "response_format", std::move(*form), tools, call, model);
  }
  text::RenderOptions options;
  options.add_generation_prompt = f.flag("add_generation_prompt", true);
  if (const Json* extra = f.find("chat_template_kwargs")) {
    if (!extra->is_object())
      f.fail("chat_template_kwargs", "an object is expected");
    else
      set_variables(f, *extra, model, call, limits, options);
  }
  if (const auto effort = f.maybe_text("reasoning_effort"); effort && model.chat_template)
    set_effort(f, "reasoning_effort", *effort, call, model, limits, options);
  if (f.has("chat_template"))
    f.fail("chat_template", "templates are not taken from requests; --chat-template sets one");
  const bool separate = f.flag("separate_reasoning", true);
  warn_of_tools(f, tools, call, limits);
  ImageReader images(call, model, limits);
  images.set_fps(video_fps(f, body, call, limits));
  auto messages = f.error() ? std::nullopt : read_messages(f, body, model, &images);
  images.check_fps(f);
  if (messages && !f.error())
    write_prompt(f, "messages", {std::move(*messages), tools, std::move(options), separate}, call, model);
  check_call(f, call, model, limits, "messages");
  return result(f, std::move(call));
}

}  // namespace reprise::server
