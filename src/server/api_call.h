// What a route is, and one call of it. Internal to this folder.
#pragma once

#include <chrono>
#include <utility>

#include "server/api.h"

namespace reprise::server {

enum class Access : uint8_t { Open, Key, Admin };

struct Api::Route {
  const char* method;
  const char* path;
  Access access;
  bool needs_model;
  void (Api::*run)(Call&);
  const Dialect* dialect = nullptr;  // of a route that generates
};

struct Api::Call {
  HttpRequest request;
  std::shared_ptr<Reply> reply;
  Headers headers;
  const Dialect* dialect = nullptr;
  ErrorForm errors = error_form(request);
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();

  void json(const OrderedJson& body, int status = 200) const {
    reply->send(status, "application/json", body.dump(-1, ' ', false, OrderedJson::error_handler_t::replace), headers);
  }
  void fail(const ApiError& error) const { error.send(*reply, headers, errors); }
};

}  // namespace reprise::server
