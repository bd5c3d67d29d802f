#include "server/openai_writer.h"

#include <chrono>

#include "base/elapsed.h"
#include "settings/setting.h"

namespace reprise::server {

using engine::SampledToken;
using sched::FinishReason;
using sched::RequestResult;

namespace {

size_t characters(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

OrderedJson number_or_null(std::optional<float> v) { return v ? OrderedJson(*v) : OrderedJson(nullptr); }

}  // namespace

OpenAiWriter::OpenAiWriter(const ServedModel& model, const GenerateCall& call)
    : model_(model),
      call_(call),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      offsets_(call.prompts.size() * static_cast<size_t>(call.n), 0),
      echoed_(offsets_.size(), false) {}

OrderedJson OpenAiWriter::base(const char* object) const {
  return {{"id", call_.id}, {"object", object}, {"created", created_}, {"model", name_in_answers(model_, call_)}};
}

OrderedJson OpenAiWriter::finish_of(const RequestResult& result, const std::string& stop_string) const {
  OrderedJson out = {{"type", reason_of(result)}};
  if (result.finish == FinishReason::Length) out["length"] = result.completion_tokens;
  if (result.finish == FinishReason::Cancelled) {
    out["message"] = settings::as_flags(result.status.message());
    out["status_code"] = nullptr;
    out["err_type"] = nullptr;
  }
  if (result.stop_token) out["matched"] = *result.stop_token;
  if (!stop_string.empty()) out["matched"] = stop_string;
  return out;
}

// The form of /v1/completions. The first token of all has no log-probability.
OrderedJson OpenAiWriter::token_logprobs(const std::vector<SampledToken>& prompt,
                                         const std::vector<SampledToken>& tokens, size_t offset) const {
  OrderedJson out = {{"tokens", OrderedJson::array()},
                     {"token_logprobs", OrderedJson::array()},
                     {"top_logprobs", OrderedJson::array()},
                     {"text_offset", OrderedJson::array()}};
  for (const auto* list : {&prompt, &tokens}) {
    for (const SampledToken& t : *list) {
      const std::string text = text_of_token(model_, t.token);
      out["tokens"].push_back(text);
      out["token_logprobs"].push_back(number_or_null(t.logprob));
      OrderedJson top = nullptr;
      if (t.logprob) {
        top = OrderedJson::object();
        for (const auto& e : t.top) {
          const std::string name = text_of_token(model_, e.token);
          if (!top.contains(name)) top[name] = e.logprob;  // two ids may have one text; the likelier is first
        }
        if (!top.contains(text)) top[text] = *t.logprob;
      }
      out["top_logprobs"].push_back(std::move(top));
      out["text_offset"].push_back(offset);
      offset += characters(text);
    }
  }
  return out;
}

OrderedJson OpenAiWriter::calls(const std::vector<ToolCall>& list, size_t first, bool indexed) const {
  OrderedJson out = OrderedJson::array();
  for (const ToolCall& c : list) {
    OrderedJson call = OrderedJson::object();
    if (indexed) call["index"] = first + out.size();
    call["id"] = c.id;
    call["type"] = "function";
    call["function"] = {{"name", c.name}, {"arguments", c.arguments}};
    out.push_back(std::move(call));
  }
  return out;
}

// Once in an answer: clients keep what they do not know, or pass over it.
void OpenAiWriter::warn(OrderedJson& out) const {
  if (call_.warnings.empty()) return;
  out["warnings"] = OrderedJson::array();
  for (const FieldWarning& w : call_.warnings) out["warnings"].push_back(w.text);
}

OrderedJson OpenAiWriter::native(const Answer& a, size_t index) const {
  const size_t at = index / static_cast<size_t>(call_.n);
  OrderedJson meta = {{"id", call_.prompt_ids.empty() ? call_.id : call_.prompt_ids[at]}};
  const auto& prompt = call_.prompts[at];
  meta["finish_reason"] = a.result ? finish_of(*a.result, a.stop_string) : OrderedJson(nullptr);
  meta["prompt_tokens"] = prompt.size();
  meta["completion_tokens"] = a.tokens.size();
  meta["cached_tokens"] = a.result ? a.result->cached_tokens : 0;
  if (a.result && a.result->drafts.steps > 0) {
    const sched::DraftCounts& d = a.result->drafts;
    meta["spec_verify_ct"] = a.result->decode_steps;
    meta["spec_accept_length"] =
        static_cast<double>(a.result->completion_tokens) / static_cast<double>(a.result->decode_steps);
    meta["spec_accept_rate"] = static_cast<double>(d.accepted) / static_cast<double>(d.drafted);
    meta["spec_accept_token_num"] = d.accepted;
    meta["spec_draft_token_num"] = d.drafted;
    // SGLang's: how many steps had 0, 1, 2, ... drafts that came true.
    std::vector<int64_t> steps = {a.result->decode_steps};
    for (const int64_t came_true : d.places.accepted) {
      steps.back() -= came_true;
      steps.push_back(came_true);
    }
    while (steps.back() == 0) steps.pop_back();
    meta["spec_accept_histogram"] = steps;
    meta["spec_drafted_per_position"] = d.places.drafted;
    meta["spec_accepted_per_position"] = d.places.accepted;
  }
  if (a.result) meta["e2e_latency"] = seconds_of(a.result->finished - a.result->arrived);
  if (call_.sampling.logprobs >= 0) {
    OrderedJson logprobs = OrderedJson::array(), tops = OrderedJson::array();
    for (const SampledToken& t : a.tokens) {
      logprobs.push_back({number_or_null(t.logprob), t.token, nullptr});
      OrderedJson top = OrderedJson::array();
      for (const auto& e : t.top) top.push_back({e.logprob, e.token, nullptr});
      tops.push_back(std::move(top));
    }
    meta["output_token_logprobs"] = std::move(logprobs);
    if (call_.sampling.logprobs > 0) meta["output_top_logprobs"] = std::move(tops);
  }
  OrderedJson ids = OrderedJson::array();
  for (const SampledToken& t : a.tokens) ids.push_back(t.token);
  OrderedJson out = {{"text", a.text}, {"output_ids", std::move(ids)}, {"meta_info", std::move(meta)}};
  if (a.result) warn(out);
  return out;
}

OrderedJson OpenAiWriter::whole(const std::vector<Answer>& answers) const {
  if (call_.kind == CallKind::Native) {
    if (answers.size() == 1 && !call_.several_prompts) return native(answers[0], 0);
    OrderedJson list = OrderedJson::array();
    for (size_t i = 0; i < answers.size(); ++i) list.push_back(native(answers[i], i));
    return list;
  }
  const bool chat = call_.kind == CallKind::Chat;
  OrderedJson out = base(chat ? "chat.completion" : "text_completion");
  out["choices"] = OrderedJson::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer& a = answers[i];
    OrderedJson choice = {{"index", i}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", a.text}};
      if (a.text.empty() && !a.calls.empty()) choice["message"]["content"] = nullptr;
      if (call_.split.reasoning)
        choice["message"]["reasoning_content"] = a.reasoning.empty() ? OrderedJson(nullptr) : OrderedJson(a.reasoning);
      if (!a.calls.empty()) choice["message"]["tool_calls"] = calls(a.calls, 0, false);
      choice["logprobs"] = call_.sampling.logprobs >= 0 ? OrderedJson{{"content", chat_logprobs(model_, a.tokens)}}
                                                        : OrderedJson(nullptr);
    } else {
      const std::string& prompt = call_.prompt_texts[i / static_cast<size_t>(call_.n)];
      choice["text"] = (call_.echo ? prompt : "") + a.text;
      choice["logprobs"] = call_.sampling.logprobs >= 0 ? token_logprobs(a.prompt, a.tokens, 0) : OrderedJson(nullptr);
    }
    choice["finish_reason"] = a.result ? OrderedJson(reason_of(*a.result, !a.calls.empty())) : OrderedJson(nullptr);
    if (a.result && a.result->stop_token) choice["stop_reason"] = *a.result->stop_token;
    if (!a.stop_string.empty()) choice["stop_reason"] = a.stop_string;
    if (call_.token_ids) {
      choice["token_ids"] = OrderedJson::array();
      for (const SampledToken& t : a.tokens) choice["token_ids"].push_back(t.token);
      choice["prompt_token_ids"] = call_.prompts[i / static_cast<size_t>(call_.n)];
    }
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = usage_of(call_, answers).json();
  warn(out);
  return out;
}

std::string OpenAiWriter::first(size_t index) {
  if (call_.kind == CallKind::Chat) {
    OrderedJson out = base("chat.completion.chunk");
    out["choices"] = {{{"index", index},
                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                       {"logprobs", nullptr},
                       {"finish_reason", nullptr}}};
    return server_event(out);
  }
  return {};
}

std::string OpenAiWriter::part(const AnswerPart& p, const Answer& so_far) {
  if (call_.kind == CallKind::Native) {
    OrderedJson out = native(so_far, p.index);
    if (call_.n * static_cast<int64_t>(call_.prompts.size()) > 1) out["index"] = p.index;
    return server_event(out);
  }
  const bool chat = call_.kind == CallKind::Chat;
  OrderedJson out = base(chat ? "chat.completion.chunk" : "text_completion");
  OrderedJson choice = {{"index", p.index}};
  const bool logs = call_.sampling.logprobs >= 0;
  if (chat) {
    OrderedJson delta = OrderedJson::object();
    if (!p.reasoning.empty()) delta["reasoning_content"] = p.reasoning;
    if (!p.calls.empty()) delta["tool_calls"] = calls(p.calls, so_far.calls.size() - p.calls.size(), true);
    if (!p.text.empty() || (delta.empty() && !p.result)) delta["content"] = p.text;
    choice["delta"] = std::move(delta);
    choice["logprobs"] =
        logs && !p.tokens.empty() ? OrderedJson{{"content", chat_logprobs(model_, p.tokens)}} : OrderedJson(nullptr);
  } else {
    // The prompt comes with the first part of the answer.
    const bool first = call_.echo && !echoed_[p.index];
    echoed_[p.index] = true;
    choice["text"] = (first ? call_.prompt_texts[p.index / static_cast<size_t>(call_.n)] : "") + p.text;
    choice["logprobs"] = nullptr;
    if (logs && (!p.tokens.empty() || !p.prompt.empty())) {
      size_t& offset = offsets_[p.index];
      choice["logprobs"] = token_logprobs(p.prompt, p.tokens, offset);
      for (const auto* list : {&p.prompt, &p.tokens})
        for (const SampledToken& t : *list) offset += characters(text_of_token(model_, t.token));
    }
  }
  choice["finish_reason"] = p.result ? OrderedJson(reason_of(*p.result, !so_far.calls.empty())) : OrderedJson(nullptr);
  if (p.result && p.result->stop_token) choice["stop_reason"] = *p.result->stop_token;
  if (!p.stop_string.empty()) choice["stop_reason"] = p.stop_string;
  if (call_.token_ids) {
    choice["token_ids"] = OrderedJson::array();
    for (const SampledToken& t : p.tokens) choice["token_ids"].push_back(t.token);
  }
  out["choices"] = OrderedJson::array({std::move(choice)});
  if (p.result) warn(out);
  if (call_.continuous_usage) {
    Usage u;
    u.prompt_tokens = static_cast<int64_t>(call_.prompts[p.index / static_cast<size_t>(call_.n)].size());
    u.completion_tokens = static_cast<int64_t>(so_far.tokens.size());
    out["usage"] = u.json();
  }
  return server_event(out);
}

std::string OpenAiWriter::end(const std::vector<Answer>& answers) {
  std::string out;
  if (call_.include_usage && call_.kind != CallKind::Native) {
    OrderedJson usage = base(call_.kind == CallKind::Chat ? "chat.completion.chunk" : "text_completion");
    usage["choices"] = OrderedJson::array();
    usage["usage"] = usage_of(call_, answers).json();
    out = server_event(usage);
  }
  return out + "data: [DONE]\n\n";
}

}  // namespace reprise::server
