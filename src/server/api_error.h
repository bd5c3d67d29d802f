// ApiError: an error as OpenAI's clients expect it: a status, words, and the field that is meant. A plain value.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "server/http.h"

namespace reprise::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // "" = none
  std::string code = {};   // "" = none

  // What went wrong inside, for the client: Invalid and Unsupported 400, NotFound 404, Busy 429, Cancelled and
  // DeviceLost 503, others 500.
  static ApiError from(const Status& status);
  // {"error": {"message", "type", "param", "code"}}
  Json json() const;
  // Answers with it. 429 and 503 tell when to come again.
  void send(Reply& reply, const Headers& headers = {}) const;
};

}  // namespace reprise::server
