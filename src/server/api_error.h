// ApiError: an error as a client is told it: a status, words, and the field that is meant; written in the form of the
// API that was asked. A plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "server/http.h"

namespace reprise::server {

// The forms in which the clients of an API read errors.
enum class ErrorForm : uint8_t {
  OpenAi,     // {"error": {"message", "type", "param", "code"}}
  Anthropic,  // {"type": "error", "error": {"type", "message"}, "request_id"}
  Ollama,     // {"error": "..."}
};
// By what is asked for; where a route is of several APIs, the headers tell.
ErrorForm error_form(const HttpRequest& request);

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};     // "" = none
  std::string code = {};      // "" = none
  int64_t retry_after_s = 1;  // of 429 and 503

  // What went wrong inside, for the client: Invalid and Unsupported 400, NotFound 404, Busy 429, Cancelled and
  // DeviceLost 503, others 500.
  static ApiError from(const Status& status);
  // `request_id`: of Anthropic's form.
  Json json(ErrorForm form = ErrorForm::OpenAi, std::string_view request_id = "") const;
  // The request's own deadline has passed: 504.
  static ApiError late(std::string message);
  // Answers with it. 429 and 503 carry Retry-After; 504 carries "x-should-retry: false" for OpenAI's clients, since the
  // client itself had set the deadline.
  void send(Reply& reply, const Headers& headers = {}, ErrorForm form = ErrorForm::OpenAi) const;
};

}  // namespace reprise::server
