// The dialects whose answers OpenAiWriter writes.
#include "server/dialect.h"
#include "server/openai_writer.h"

namespace reprise::server {
namespace {

using Parser = ParsedCall (*)(const OrderedJson&, const ServedModel&, const CallLimits&);

class OpenAiDialect final : public Dialect {
 public:
  OpenAiDialect(const char* route, Parser parser) : route_(route), parser_(parser) {}
  const char* route() const override { return route_; }
  const char* name() const override { return route_ == std::string_view("/generate") ? "native" : "openai"; }
  const char* operation() const override { return parser_ == parse_chat ? "chat" : "text_completion"; }
  ParsedCall parse(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) const override {
    return parser_(body, model, limits);
  }
  std::unique_ptr<AnswerWriter> writer(const ServedModel& model, const GenerateCall& call) const override {
    return std::make_unique<OpenAiWriter>(model, call);
  }

 private:
  const char* route_;
  Parser parser_;
};

}  // namespace

const Dialect& completions_dialect() {
  static const OpenAiDialect dialect("/v1/completions", parse_completion);
  return dialect;
}
const Dialect& chat_dialect() {
  static const OpenAiDialect dialect("/v1/chat/completions", parse_chat);
  return dialect;
}
const Dialect& native_dialect() {
  static const OpenAiDialect dialect("/generate", parse_native);
  return dialect;
}

}  // namespace reprise::server
