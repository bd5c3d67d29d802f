#include "client/generation.h"

#include "base/elapsed.h"

namespace reprise::client {
namespace {

constexpr size_t kMostErrorBytes = 4096;

// What an error's JSON says: {"error": {"message": ...}}, {"error": "..."}, {"message": ...}, or null.
std::string message_of(const Json& json) {
  if (!json.is_object()) return {};
  const auto error = json.find("error");
  if (error != json.end() && error->is_string()) return error->get<std::string>();
  const Json& from = error != json.end() && error->is_object() ? *error : json;
  const auto message = from.find("message");
  return message != from.end() && message->is_string() ? message->get<std::string>() : std::string();
}

int64_t integer(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view name) {
  if (name == "completions") return Endpoint::Completions;
  if (name == "chat") return Endpoint::Chat;
  if (name == "generate") return Endpoint::Generate;
  return invalid("unknown endpoint \"{}\"; allowed: completions, chat, generate", name);
}

HttpCall http_call(const GenerationCall& call, const GenerationStyle& style) {
  const auto* ids = std::get_if<PromptIds>(&call.prompt);
  const auto* text = std::get_if<std::string>(&call.prompt);
  HttpCall out;
  OrderedJson body;
  OrderedJson sampling;
  if (style.endpoint != Endpoint::Generate && !style.model.empty()) body["model"] = style.model;
  switch (style.endpoint) {
    case Endpoint::Completions:
      out.path = "/v1/completions";
      body["prompt"] = ids ? OrderedJson(*ids) : OrderedJson(*text);
      body["max_tokens"] = call.max_tokens;
      // A server without a tokenizer has nothing else to stream.
      if (ids) body["return_token_ids"] = true;
      break;
    case Endpoint::Chat:
      out.path = "/v1/chat/completions";
      body["messages"] = {{{"role", "user"},
                           {"content", text  ? OrderedJson(*text)
                                       : ids ? OrderedJson("")
                                             : std::get<OrderedJson>(call.prompt)}}};
      body["max_completion_tokens"] = call.max_tokens;
      body["max_tokens"] = call.max_tokens;
      break;
    case Endpoint::Generate:
      out.path = "/generate";
      body[ids ? "input_ids" : "text"] = ids ? OrderedJson(*ids) : OrderedJson(*text);
      sampling["max_new_tokens"] = call.max_tokens;
      break;
  }
  OrderedJson& parameters = style.endpoint == Endpoint::Generate ? sampling : body;
  parameters["temperature"] = style.temperature;
  if (style.ignore_eos) parameters["ignore_eos"] = true;
  if (!style.stop.empty()) parameters["stop"] = style.stop;
  if (style.endpoint == Endpoint::Generate)
    body["sampling_params"] = std::move(sampling);
  else
    body["stream_options"] = {{"include_usage", true}};
  body["stream"] = true;
  for (const auto& [key, value] : style.extra.items()) body[key] = value;
  out.body = body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return out;
}

GenerationReader::GenerationReader(Endpoint endpoint, const GenerationCall& call, Clock::time_point sent)
    : endpoint_(endpoint), sent_(sent), last_(sent) {
  record_.prompt_tokens = call.prompt_tokens;
}

void GenerationReader::push(std::string_view bytes, Clock::time_point now) {
  if (status_ != 200) {
    body_ += bytes.substr(0, kMostErrorBytes - std::min(kMostErrorBytes, body_.size()));
    return;
  }
  events_.push(bytes);
  while (const auto data = events_.next()) take_event(*data, now);
}

void GenerationReader::take_event(const std::string& data, Clock::time_point now) {
  if (done_) return;
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  auto event = parse_json(data, "an event of the stream");
  if (!event) return fail(event.status().message());
  if (!event->is_object()) return fail("an event of the stream is not an object");
  if (event->contains("error") && !(*event)["error"].is_null())
    return fail("error in the stream: " + message_of(*event));
  if (endpoint_ == Endpoint::Generate)
    take_native(*event, now);
  else
    take_openai(*event, now);
}

void GenerationReader::heard(int64_t tokens, Clock::time_point now) {
  if (!heard_) {
    heard_ = true;
    record_.ttft_s = seconds_of(now - sent_);
  } else if (endpoint_ == Endpoint::Generate) {
    for (int64_t i = 0; i < tokens; ++i) record_.itl_s.push_back(seconds_of(now - last_) / static_cast<double>(tokens));
  } else {
    record_.itl_s.push_back(seconds_of(now - last_));
  }
  counted_ += tokens;
  last_ = now;
}

void GenerationReader::take_openai(const Json& event, Clock::time_point now) {
  const auto usage = event.find("usage");
  if (usage != event.end() && usage->is_object()) take_usage(*usage);
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array() || choices->empty()) return;
  const Json& choice = choices->front();
  if (!choice.is_object()) return fail("a choice in the stream is not an object");
  std::string text;
  int64_t tokens = 0;
  if (endpoint_ == Endpoint::Chat) {
    const auto delta = choice.find("delta");
    if (delta != choice.end() && delta->is_object()) {
      text = text_of(*delta, "content");
      const std::string thought = text_of(*delta, "reasoning_content");
      const auto calls = delta->find("tool_calls");
      const bool called = calls != delta->end() && calls->is_array() && !calls->empty();
      if (!text.empty() || !thought.empty() || called) tokens = 1;
    }
  } else {
    text = text_of(choice, "text");
    if (!text.empty()) tokens = 1;
    const auto ids = choice.find("token_ids");
    if (ids != choice.end() && ids->is_array() && !ids->empty()) tokens = static_cast<int64_t>(ids->size());
  }
  record_.text += text;
  if (tokens > 0) heard(tokens, now);
  if (std::string reason = text_of(choice, "finish_reason"); !reason.empty()) record_.finish_reason = std::move(reason);
  begun_ = true;
  record_.latency_s = seconds_of(now - sent_);
}

void GenerationReader::take_native(const Json& event, Clock::time_point now) {
  record_.text = text_of(event, "text");  // all of it so far
  const auto meta = event.find("meta_info");
  if (meta != event.end() && meta->is_object()) {
    const int64_t tokens = integer(*meta, "completion_tokens"), fresh = tokens - native_tokens_;
    native_tokens_ = tokens;
    if (fresh > 0) heard(fresh, now);
    take_usage(*meta);
    record_.cached_tokens = integer(*meta, "cached_tokens");
    const auto reason = meta->find("finish_reason");
    if (reason != meta->end() && reason->is_object())
      record_.finish_reason = text_of(*reason, "type");
    else if (reason != meta->end() && reason->is_string())
      record_.finish_reason = reason->get<std::string>();
  } else if (!record_.text.empty()) {
    heard(1, now);
  }
  begun_ = true;
  record_.latency_s = seconds_of(now - sent_);
}

void GenerationReader::take_usage(const Json& usage) {
  const int64_t output = integer(usage, "completion_tokens"), prompt = integer(usage, "prompt_tokens");
  if (usage.contains("completion_tokens")) {
    record_.usage_told = true;
    record_.output_tokens = output;
  }
  if (prompt > 0) record_.prompt_tokens = prompt;
  const auto details = usage.find("prompt_tokens_details");
  if (details != usage.end() && details->is_object()) record_.cached_tokens = integer(*details, "cached_tokens");
}

void GenerationReader::fail(std::string why) {
  if (record_.problem.empty()) record_.problem = std::move(why);
}

GenerationRecord GenerationReader::end(const Status& status) {
  if (status_ == 200) {
    events_.end();
    while (const auto data = events_.next()) take_event(*data, last_);
  }
  if (!status.is_ok()) fail(status.message());
  if (status_ != 200 && record_.problem.empty()) {
    const Json json = Json::parse(body_, nullptr, false);
    std::string said = message_of(json);
    if (said.empty()) said = body_.substr(0, 200);
    fail(fmt::format("HTTP {}: {}", status_, said));
  }
  if (record_.problem.empty() && !begun_) fail("the stream held no answer");
  if (record_.problem.empty() && !done_ && record_.finish_reason.empty())
    fail("the stream ended without [DONE] and without a finish_reason");
  // An answer without a single word of text: its end is its first event.
  if (!heard_ && begun_) record_.ttft_s = record_.latency_s;
  if (!record_.usage_told) record_.output_tokens = counted_;
  record_.ok = record_.problem.empty();
  return std::move(record_);
}

}  // namespace reprise::client
