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
  std::string param = {};     // "" = none
  std::string code = {};      // "" = none
  int64_t retry_after_s = 1;  // of 429 and 503

  // What went wrong inside, for the client: Invalid and Unsupported 400, NotFound 404, Busy 429, Cancelled and
  // DeviceLost 503, others 500.
  static ApiError from(const Status& status);
  // {"error": {"message", "type", "param", "code"}}
  Json json() const;
  // The request's own deadline has passed: 504.
  static ApiError late(std::string message);
  // Answers with it. 429 and 503 carry Retry-After; 504 carries "x-should-retry: false" for OpenAI's clients, since the
  // client itself had set the deadline.
  void send(Reply& reply, const Headers& headers = {}) const;
};

}  // namespace reprise::server
