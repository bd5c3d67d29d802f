// The body of a request, given to every route that reads one: the parsers of all dialects, the count of a message's
// tokens, tokenize and detokenize. What is refused is refused with a 4xx that can be written; what is taken keeps
// the limits.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "apps/byte_tokenizer.h"
#include "server/api.h"
#include "server/dialect.h"

using namespace reprise;
using namespace reprise::server;

namespace {

constexpr const char* kTemplate =
    "{% if tools %}<tool_call>{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
    "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>{% endif %}{% endif %}";

// Runs what is posted at once: there is one thread.
class NoHttp final : public HttpServer {
 public:
  int64_t port() const override { return 0; }
  int64_t admin_port() const override { return 0; }
  bool on_loopback() const override { return true; }
  void run() override {}
  void stop() override {}
  void adopt(int) override {}
  void accept_inherited() override {}
  void leave() override {}
  void post(std::function<void()> what) override { what(); }
  void after(std::chrono::milliseconds, std::function<void()> what) override { what(); }
  HttpCounters counters() const override { return {}; }
};

class LastReply final : public Reply {
 public:
  explicit LastReply(int& status) : status_(status) {}
  void send(int status, std::string_view, std::string body, const Headers&) override {
    if (!Json::accept(body)) std::abort();
    status_ = status;
  }
  void begin(int, std::string_view, const Headers&) override { std::abort(); }
  void write(std::string) override { std::abort(); }
  void end() override { std::abort(); }
  void on_gone(std::function<void()>) override {}
  bool gone() const override { return false; }

 private:
  int& status_;
};

struct World {
  World() : chat_template(text::ChatTemplate::compile(kTemplate, OrderedJson::object()).value()) {
    const Json marks = {{{"id", 256}, {"content", "<end>"}, {"special", true}},
                        {{"id", 257}, {"content", "<tool_call>"}, {"special", false}}};
    model.name = "m";
    model.tokenizer = text::Tokenizer::from_json(apps::byte_tokenizer(marks)).value();
    model.chat_template = &chat_template;
    model.tool_format = ToolFormat::Hermes;
    model.reasoning = true;
    model.eos_tokens = {256};
    model.context_length = 4096;
    model.vocab_size = 258;
    grammars.emplace(text::grammar::TokenTable::from_tokenizer(*model.tokenizer, model.eos_tokens, 258).value());
    model.grammars = &*grammars;
    api.attach(http);
    api.serve({&model, nullptr, nullptr, Json::object()});
  }

  void check(const ParsedCall& parsed) {
    if (const auto* wrong = std::get_if<ApiError>(&parsed)) {
      if (wrong->status < 400 || wrong->status > 499 || wrong->message.empty()) std::abort();
      int status = 0;
      LastReply reply(status);
      for (const ErrorForm form : {ErrorForm::OpenAi, ErrorForm::Anthropic, ErrorForm::Ollama})
        wrong->send(reply, {}, form);
      return;
    }
    const auto& call = std::get<GenerateCall>(parsed);
    if (call.nothing && call.prompts.empty()) return;
    int64_t tokens = 0;
    for (const auto& prompt : call.prompts) {
      if (prompt.empty() || static_cast<int64_t>(prompt.size()) >= model.context_length) std::abort();
      for (const int32_t id : prompt)
        if (id < 0 || id >= model.vocab_size) std::abort();
      tokens += static_cast<int64_t>(prompt.size()) * call.n;
    }
    if (static_cast<int64_t>(call.prompts.size()) * call.n > limits.most_answers || tokens > limits.token_budget)
      std::abort();
    if (!call.sampling.check(model.vocab_size).is_ok()) std::abort();
    if (call.grammar && !make_constraint(call.grammar).is_ok()) return;
  }
  void ask(const char* path, std::string_view body) {
    int status = 0;
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = body;
    api.handle(std::move(request), std::make_shared<LastReply>(status));
    if (status != 200 && (status < 400 || status > 499)) std::abort();
  }

  text::ChatTemplate chat_template;
  ServedModel model;
  std::optional<AnswerGrammars> grammars;
  CallLimits limits;
  NoHttp http;
  Api api{{}};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const char* path : {"/tokenize", "/detokenize", "/v1/messages/count_tokens", "/api/show"}) world.ask(path, body);
  const auto json = parse_ordered_json(body, "the request's body");
  if (!json) return 0;
  for (const Dialect* dialect : {&completions_dialect(), &chat_dialect(), &native_dialect(), &responses_dialect(),
                                 &messages_dialect(), &ollama_chat_dialect(), &ollama_generate_dialect()})
    world.check(dialect->parse(*json, world.model, world.limits));
  return 0;
}
