// Ollama's chats and texts: the answers, whole and as lines of JSON.
#include <chrono>

#include "server/dates.h"
#include "server/dialect.h"
#include "server/fields.h"
#include "server/ollama_reader.h"

namespace reprise::server {
namespace {

using sched::RequestResult;

class OllamaWriter final : public AnswerWriter {
 public:
  OllamaWriter(const ServedModel& model, const GenerateCall& call, bool chat)
      : model_(model), call_(call), chat_(chat) {}

  OrderedJson whole(const std::vector<Answer>& answers) const override {
    if (answers.empty()) {  // nothing was asked for: the model is there
      OrderedJson out = base();
      say(out, "", "", {}, {});
      out["done"] = true;
      out["done_reason"] = "load";
      return out;
    }
    const Answer& a = answers.front();
    OrderedJson out = base();
    say(out, a.text, a.reasoning, a.calls, a.tokens);
    finish(out, *a.result);
    return out;
  }

  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string part(const AnswerPart& p, const Answer&) override {
    std::string out;
    const bool logs = call_.sampling.logprobs >= 0 && !p.tokens.empty();
    if (!p.text.empty() || !p.reasoning.empty() || !p.calls.empty() || logs) {
      OrderedJson line = base();
      say(line, p.text, p.reasoning, p.calls, p.tokens);
      line["done"] = false;
      out += dumped(line) + "\n";
    }
    if (p.result) {
      OrderedJson line = base();
      say(line, "", "", {}, {});
      finish(line, *p.result);
      out += dumped(line) + "\n";
    }
    return out;
  }
  std::string error(const ApiError& error) override { return dumped(error.json(ErrorForm::Ollama)) + "\n"; }
  std::string end(const std::vector<Answer>&) override { return {}; }

 private:
  OrderedJson base() const {
    return {{"model", call_.model_name}, {"created_at", date_of(std::chrono::system_clock::now())}};
  }

  void say(OrderedJson& out, const std::string& text, const std::string& thought, const std::vector<ToolCall>& calls,
           const std::vector<engine::SampledToken>& tokens) const {
    if (!chat_) {
      out["response"] = text;
      if (!thought.empty()) out["thinking"] = thought;
    } else {
      OrderedJson& message = out["message"] = {{"role", "assistant"}, {"content", text}};
      if (!thought.empty()) message["thinking"] = thought;
      for (const ToolCall& c : calls) {
        auto arguments = parse_ordered_json(c.arguments, "arguments");
        message["tool_calls"].push_back(
            {{"id", c.id},
             {"function",
              {{"name", c.name}, {"arguments", arguments ? std::move(*arguments) : OrderedJson::object()}}}});
      }
    }
    if (call_.sampling.logprobs >= 0 && !tokens.empty()) out["logprobs"] = chat_logprobs(model_, tokens);
  }

  void finish(OrderedJson& out, const RequestResult& r) const {
    const auto ns = [](auto from, auto to) {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count();
    };
    const auto first = r.first_token.value_or(r.finished), admitted = r.admitted.value_or(first);
    out["done"] = true;
    out["done_reason"] = reason_of(r);
    out["total_duration"] = ns(r.arrived, r.finished);
    out["load_duration"] = 0;
    out["prompt_eval_count"] = r.prompt_tokens;
    out["prompt_eval_duration"] = ns(admitted, first);
    out["eval_count"] = r.completion_tokens;
    out["eval_duration"] = ns(first, r.finished);
  }

  const ServedModel& model_;
  const GenerateCall& call_;
  bool chat_;
};

class OllamaDialect final : public Dialect {
 public:
  explicit OllamaDialect(bool chat) : chat_(chat) {}
  const char* route() const override { return chat_ ? "/api/chat" : "/api/generate"; }
  const char* name() const override { return "ollama"; }
  const char* operation() const override { return chat_ ? "chat" : "text_completion"; }
  ErrorForm errors() const override { return ErrorForm::Ollama; }
  ParsedCall parse(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) const override {
    return chat_ ? parse_ollama_chat(body, model, limits) : parse_ollama_generate(body, model, limits);
  }
  std::unique_ptr<AnswerWriter> writer(const ServedModel& model, const GenerateCall& call) const override {
    return std::make_unique<OllamaWriter>(model, call, chat_);
  }

 private:
  bool chat_;
};

}  // namespace

const Dialect& ollama_chat_dialect() {
  static const OllamaDialect dialect(true);
  return dialect;
}
const Dialect& ollama_generate_dialect() {
  static const OllamaDialect dialect(false);
  return dialect;
}

}  // namespace reprise::server
