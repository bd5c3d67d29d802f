// Dialect: one API in which generating calls are made: how a body is read as a GenerateCall, how the answers are
// written, and the form of its errors. Jobs and the scheduler know no dialect. Immutable, and there for good; any
// thread.
#pragma once

#include <memory>

#include "server/answer.h"
#include "server/generate_call.h"

namespace reprise::server {

class Dialect {
 public:
  virtual ~Dialect() = default;

  virtual const char* route() const = 0;                    // that serves it
  virtual const char* name() const = 0;                     // in the request log
  virtual const char* operation() const { return "chat"; }  // in traces, a word of OpenTelemetry's
  virtual ErrorForm errors() const { return ErrorForm::OpenAi; }
  virtual ParsedCall parse(const OrderedJson& body, const ServedModel& model, const CallLimits& limits) const = 0;
  // The model and the call outlive it.
  virtual std::unique_ptr<AnswerWriter> writer(const ServedModel& model, const GenerateCall& call) const = 0;
};

const Dialect& completions_dialect();  // OpenAI's
const Dialect& chat_dialect();
const Dialect& responses_dialect();
const Dialect& native_dialect();    // SGLang's
const Dialect& messages_dialect();  // Anthropic's
const Dialect& ollama_chat_dialect();
const Dialect& ollama_generate_dialect();

}  // namespace reprise::server
