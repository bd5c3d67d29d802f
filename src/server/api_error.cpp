#include "server/api_error.h"

#include "settings/setting.h"

namespace reprise::server {
namespace {

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

const char* anthropic_type_of(int status) {
  switch (status) {
    case 413: return "request_too_large";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "api_error" : type_of(status);
  }
}

}  // namespace

ApiError ApiError::from(const Status& status) {
  // Its operator reads it, who gave flags.
  ApiError e{500, settings::as_flags(status.message())};
  switch (status.code()) {
    case Code::Invalid:
    case Code::Unsupported: e.status = 400; break;
    case Code::NotFound: e.status = 404; break;
    case Code::Busy: e.status = 429; break;
    case Code::Cancelled:
    case Code::DeviceLost: e.status = 503; break;
    default: break;
  }
  return e;
}

ApiError ApiError::late(std::string message) { return {504, std::move(message), "timeout", "deadline_exceeded"}; }

ErrorForm error_form(const HttpRequest& request) {
  const std::string_view path = request.path;
  if (path.starts_with("/api/")) return ErrorForm::Ollama;
  const bool shared = path.starts_with("/v1/models") && request.headers.contains("anthropic-version");
  return shared || path.starts_with("/v1/messages") ? ErrorForm::Anthropic : ErrorForm::OpenAi;
}

Json ApiError::json(ErrorForm form, std::string_view request_id) const {
  if (form == ErrorForm::Ollama) return {{"error", message}};
  if (form == ErrorForm::Anthropic)
    return {{"type", "error"},
            {"error", {{"type", anthropic_type_of(status)}, {"message", message}}},
            {"request_id", request_id.empty() ? Json(nullptr) : Json(request_id)}};
  const auto text_or_null = [](const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); };
  return {{"error",
           {{"message", message},
            {"type", type_of(status)},
            {"param", text_or_null(param)},
            {"code", code.empty() ? Json(status) : Json(code)}}}};
}

void ApiError::send(Reply& reply, const Headers& headers, ErrorForm form) const {
  Headers all = headers;
  std::string_view id;
  for (const auto& [name, value] : headers)
    if (name == "request-id") id = value;
  if (status == 429 || status == 503) all.emplace_back("retry-after", std::to_string(retry_after_s));
  if (status == 504) all.emplace_back("x-should-retry", "false");
  if (status == 401) all.emplace_back("www-authenticate", "Bearer");
  reply.note({{"error", code.empty() ? std::string(type_of(status)) : code}}, false);
  // Bytes of the client may be quoted in the message; they need not be UTF-8.
  reply.send(status, "application/json", json(form, id).dump(-1, ' ', false, Json::error_handler_t::replace), all);
}

}  // namespace reprise::server
