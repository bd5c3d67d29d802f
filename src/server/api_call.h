// What a route is, and one call of it. Internal to this folder. Routes are constants. A call belongs to the handler
// that it is given to: to the HTTP thread, or to the worker that reads its body.
#pragma once

#include <chrono>
#include <utility>

#include "server/api.h"

namespace reprise::server {

struct Api::Route : RouteFacts {
  void (Api::*run)(Call&);
  const Dialect* dialect = nullptr;  // of a route that generates
  const char* operation = nullptr;   // for traces, of one that computes something else
  const char* traced() const { return dialect ? dialect->operation() : operation; }
};

struct Api::Call {
  HttpRequest request;
  std::shared_ptr<Reply> reply;
  Headers headers;
  const Dialect* dialect = nullptr;
  std::shared_ptr<RequestSpan> span = nullptr;  // where it is traced
  ErrorForm errors = error_form(request);
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();

  void json(const OrderedJson& body, int status = 200) const {
    reply->send(status, "application/json", body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace), headers);
  }
  void fail(const ApiError& error) const { error.send(*reply, headers, errors); }
};

}  // namespace reprise::server
