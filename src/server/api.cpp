// Routes, keys and states; the routes themselves are in api_routes.cpp.
#include "server/api.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/log_form.h"
#include "server/api_call.h"
#include "server/caller.h"
#include "server/cors.h"
#include "server/dates.h"
#include "server/ids.h"

namespace reprise::server {
namespace {

// Takes the same time wherever the two differ.
bool same(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  return difference == 0;
}

// The scheme's name is taken in any case (RFC 9110 11.1).
bool is_bearer(std::string_view scheme) {
  constexpr std::string_view kBearer = "bearer ";
  return std::equal(scheme.begin(), scheme.end(), kBearer.begin(), kBearer.end(),
                    [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
}

// Counts and logs what is answered.
class CountedReply final : public Reply {
 public:
  CountedReply(std::shared_ptr<Reply> reply, const HttpRequest& request, std::string id, Metrics* metrics,
               std::atomic<int64_t>& active, bool log, RequestLogFile* file, std::string_view route,
               std::function<void(int)> answered, std::shared_ptr<RequestSpan> span)
      : reply_(std::move(reply)),
        id_(std::move(id)),
        metrics_(metrics),
        active_(active),
        file_(file),
        answered_(std::move(answered)),
        span_(std::move(span)) {
    ++active_;
    if (file_) record_ = {{"ts", date_of(std::chrono::system_clock::now())}, {"request_id", id_}, {"route", route}};
    if (log)
      line_ = {{"request_id", id_}, {"client", request.client}, {"method", request.method}, {"path", request.path}};
  }
  ~CountedReply() override {
    complete();
    if (!line_.is_null()) log::write(log::Level::Info, "request", finished(line_));
    if (file_) file_->write(finished(record_));
  }
  void send(int status, std::string_view type, std::string body, const Headers& headers) override {
    count(status);
    bytes_ += body.size();
    ended_ = true;
    complete();
    reply_->send(status, type, std::move(body), headers);
  }
  void begin(int status, std::string_view type, const Headers& headers) override {
    count(status);
    reply_->begin(status, type, headers);
  }
  void write(std::string piece) override {
    bytes_ += piece.size();
    reply_->write(std::move(piece));
  }
  void end() override {
    ended_ = true;
    complete();
    reply_->end();
  }
  void on_gone(std::function<void()> callback) override { reply_->on_gone(std::move(callback)); }
  bool gone() const override { return reply_->gone(); }
  void note(const OrderedJson& facts, bool brief) override {
    if (!line_.is_null() && brief) line_.update(facts);
    if (file_) record_.update(facts);
  }

 private:
  OrderedJson finished(OrderedJson line) const {
    line["status"] = status_;
    line["bytes"] = bytes_;
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
    line["total_ms"] = std::round(ms * 1000) / 1000;
    if (reply_->gone() && !ended_) line["client_gone"] = true;
    return line;
  }
  void count(int status) {
    status_ = status;
    if (answered_) answered_(status);
    if (metrics_) metrics_->answered(status);
  }

  // Before the client can see the end, and may ask for the number. What holds a reply may keep it for a while.
  void complete() {
    if (std::exchange(counted_, false)) --active_;
    if (const auto span = std::exchange(span_, nullptr)) span->end(status_);
  }

  std::shared_ptr<Reply> reply_;
  std::string id_;
  Metrics* metrics_;
  std::atomic<int64_t>& active_;
  RequestLogFile* file_;
  std::function<void(int)> answered_;
  std::shared_ptr<RequestSpan> span_;
  OrderedJson line_, record_;
  int status_ = 0;
  size_t bytes_ = 0;
  bool ended_ = false, counted_ = true;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// A path that is no route's is a text that a client wrote.
std::string_view route_for_log(const std::vector<std::string>& names, std::string_view path) {
  for (const std::string_view name : names) {
    const std::string_view route = name.substr(name.find(' ') + 1);
    if (route == path || (route.size() > 1 && route.ends_with('/') && path.starts_with(route))) return route;
  }
  return "unknown";
}

std::string request_id(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  const bool good = !given.empty() && given.size() <= 128 &&
                    std::all_of(given.begin(), given.end(), [](char c) { return c > ' ' && c < 127; });
  return good ? std::string(given) : make_id("req-");
}

}  // namespace

const std::vector<Api::Route>& Api::routes() {
  using A = Access;
  static const std::vector<Route> list = {
      {"GET", "/", A::Open, false, &Api::page},
      {"GET", "/docs", A::Open, false, &Api::docs},
      {"GET", "/health", A::Open, false, &Api::health},
      {"GET", "/health_generate", A::Open, true, &Api::health_generate},
      {"GET", "/livez", A::Open, false, &Api::live},
      {"GET", "/readyz", A::Open, false, &Api::ready},
      {"GET", "/load", A::Key, true, &Api::load},
      {"GET", "/v1/loads", A::Key, true, &Api::loads},
      {"POST", "/apply-template", A::Key, true, &Api::apply_template},
      {"GET", "/ping", A::Open, false, &Api::health},
      {"GET", "/ready", A::Open, false, &Api::ready},
      {"GET", "/version", A::Key, false, &Api::version},
      {"GET", "/openapi.json", A::Key, false, &Api::openapi},
      {"GET", "/v1/models", A::Key, true, &Api::models},
      {"GET", "/v1/models/", A::Key, true, &Api::models},  // and what follows
      {"GET", "/model_info", A::Key, true, &Api::model_info},
      {"GET", "/get_model_info", A::Key, true, &Api::model_info},
      {"GET", "/server_info", A::Key, true, &Api::server_info},
      {"GET", "/get_server_info", A::Key, true, &Api::server_info},
      {"GET", "/metrics", A::Key, true, &Api::metrics},
      {"POST", "/tokenize", A::Key, true, &Api::tokenize},
      {"POST", "/detokenize", A::Key, true, &Api::detokenize},
      {"GET", "/tokenizer_info", A::Key, true, &Api::tokenizer_info},
      {"POST", "/v1/completions", A::Key, true, &Api::generate, &completions_dialect()},
      {"POST", "/v1/chat/completions", A::Key, true, &Api::generate, &chat_dialect()},
      {"POST", "/v1/embeddings", A::Key, true, &Api::embeddings, nullptr, "embeddings"},
      {"POST", "/v1/rerank", A::Key, true, &Api::rerank, nullptr, "rerank"},
      {"POST", "/v2/rerank", A::Key, true, &Api::rerank, nullptr, "rerank"},
      {"POST", "/rerank", A::Key, true, &Api::rerank, nullptr, "rerank"},
      {"POST", "/v1/score", A::Key, true, &Api::score, nullptr, "score"},
      {"POST", "/score", A::Key, true, &Api::score, nullptr, "score"},
      {"POST", "/v1/responses", A::Key, true, &Api::generate, &responses_dialect()},
      {"GET", "/v1/responses/", A::Key, false, &Api::response},  // and what follows
      {"POST", "/v1/messages", A::Key, true, &Api::generate, &messages_dialect()},
      {"POST", "/v1/messages/count_tokens", A::Key, true, &Api::count_tokens},
      {"POST", "/api/chat", A::Key, true, &Api::generate, &ollama_chat_dialect()},
      {"POST", "/api/generate", A::Key, true, &Api::generate, &ollama_generate_dialect()},
      {"POST", "/api/show", A::Key, true, &Api::ollama_show},
      {"GET", "/api/tags", A::Key, true, &Api::ollama_tags},
      {"GET", "/api/ps", A::Key, true, &Api::ollama_running},
      {"GET", "/api/version", A::Key, false, &Api::ollama_version},
      {"POST", "/api/embed", A::Key, true, &Api::embeddings, nullptr, "embeddings"},
      {"POST", "/api/embeddings", A::Key, true, &Api::embeddings, nullptr, "embeddings"},
      {"POST", "/api/pull", A::Key, false, &Api::ollama_manages_no_models},
      {"POST", "/api/push", A::Key, false, &Api::ollama_manages_no_models},
      {"POST", "/api/create", A::Key, false, &Api::ollama_manages_no_models},
      {"POST", "/api/copy", A::Key, false, &Api::ollama_manages_no_models},
      {"DELETE", "/api/delete", A::Key, false, &Api::ollama_manages_no_models},
      {"POST", "/generate", A::Key, true, &Api::generate, &native_dialect()},
      {"GET", "/requests", A::Admin, true, &Api::requests},
      {"POST", "/flush_cache", A::Admin, true, &Api::flush_cache},
      {"POST", "/reset_prefix_cache", A::Admin, true, &Api::flush_cache},
      {"POST", "/abort_request", A::Admin, true, &Api::abort_request},
      {"POST", "/v1/load_lora_adapter", A::Admin, true, &Api::load_adapter},
      {"POST", "/v1/unload_lora_adapter", A::Admin, true, &Api::unload_adapter},
      {"POST", "/load_lora_adapter", A::Admin, true, &Api::load_adapter},
      {"POST", "/unload_lora_adapter", A::Admin, true, &Api::unload_adapter},
      {"POST", "/start_profile", A::Admin, true, &Api::start_profile},
      {"POST", "/stop_profile", A::Admin, true, &Api::stop_profile},
  };
  return list;
}

std::vector<std::string> Api::route_names() {
  std::vector<std::string> out;
  for (const Route& r : routes()) out.push_back(fmt::format("{} {}", r.method, r.path));
  return out;
}

void Api::serve(const Serving& serving) {
  http_->post([this, serving] {
    serving_ = serving;
    if (state_ == ServerState::Loading) state_ = ServerState::Serving;
  });
}

void Api::change(LiveOptions options) {
  http_->post([this, options = std::move(options)]() mutable {
    static_cast<LiveOptions&>(options_) = std::move(options);
    ring_.replace(options_.keys);
  });
}

void Api::count_reload(bool ok) {
  http_->post([this, ok] { ++(ok ? reloads_ : refused_reloads_); });
}

void Api::leave() { leaving_ = true; }

void Api::drain() {
  stopping_ = true;
  for (ServerState now = state_; now != ServerState::Failed;)
    if (state_.compare_exchange_weak(now, ServerState::Draining)) return;
}

void Api::fail(std::string why) {
  failure_ = std::move(why);
  state_ = ServerState::Failed;
}

// The answer in a state that is not Serving.
ApiError Api::not_serving() const {
  switch (state_) {
    case ServerState::Loading: return {503, "the model is still being loaded"};
    case ServerState::Failed: return {503, failure_};
    default: return {503, "the server is shutting down"};
  }
}

std::string_view Api::key_of(const HttpRequest& request) {
  std::string_view key = request.header("authorization");
  if (key.size() >= 7 && is_bearer(key.substr(0, 7))) key.remove_prefix(7);
  const std::string_view other = request.header("x-api-key");  // Anthropic's
  if (other.empty()) return key;
  return key.empty() || same(key, other) ? other : std::string_view();
}

Api::Who Api::who(const HttpRequest& request) const {
  const std::string_view key = key_of(request);
  const bool admin = !options_.admin_api_key.empty() && same(key, options_.admin_api_key);
  if (const KeyRules* rules = ring_.find(key)) {
    if (rules->expires && std::time(nullptr) >= *rules->expires) return Who::Expired;
    return admin || rules->admin ? Who::Admin : Who::User;
  }
  bool user = !asks_for_key() || (!options_.api_key.empty() && same(key, options_.api_key));
  for (const std::string& k : options_.api_keys) user |= same(key, k);
  return admin ? Who::Admin : user ? Who::User : Who::Nobody;
}

// A browser on this machine, or one that may reach it, sends what pages of other sites have it send. A key that is
// asked for is no such page's to send; where none is, the sender counts.
std::optional<ApiError> Api::refuse_sender(const HttpRequest& request, const Route& route) const {
  if (options_.allowed_hosts && !host_is_allowed(request, *options_.allowed_hosts))
    return ApiError{
        403,
        "this server listens on loopback, but the Host header has another name; --allowed-hosts NAME of the "
        "server allows it",
        "", "host_not_allowed"};
  if (std::string_view(route.method) != "POST") return std::nullopt;
  if (is_page_content(request.header("content-type")))
    return ApiError{415, "the body's content type has to be application/json", "", "unsupported_media_type"};
  const bool by_key = asks_for_key() || who(request) == Who::Admin;
  const bool allowed = origin_is_allowed(request, options_.cors_origins);
  if (!by_key && !allowed && is_of_foreign_page(request, options_.allowed_hosts.value_or(std::vector<std::string>())))
    return ApiError{
        403,
        "a page of another site may not post here, unless with a key (--api-key of the server) or from an allowed "
        "origin (--cors-origins)",
        "", "foreign_origin"};
  return std::nullopt;
}

std::optional<ApiError> Api::refuse(const HttpRequest& request, const Route& route) const {
  const Who asks = who(request);
  if (route.access != Access::Open && asks == Who::Expired)
    return ApiError{401, "the API key has expired", "", "expired_api_key"};
  if (route.access != Access::Open && asks == Who::Nobody)
    return ApiError{401, "the API key is missing or wrong; send it as \"Authorization: Bearer KEY\"", "",
                    "invalid_api_key"};
  if (auto refused = refuse_sender(request, route)) return refused;
  const bool here = (options_.admin_port ? request.on_admin_port : request.from_loopback) &&
                    !came_through_proxy(request) && !is_of_foreign_page(request) && host_is_allowed(request, {});
  if (route.access == Access::Admin && asks != Who::Admin && !here)
    return ApiError{403, options_.admin_port ? "this route is on the admin port (--admin-port) alone"
                                             : "this route is for clients on this machine (by a name of loopback, "
                                               "through no proxy, and no page of another site), or with "
                                               "--admin-api-key"};
  if (route.needs_model && state_ != ServerState::Serving) return not_serving();
  return std::nullopt;
}

const Api::Route* Api::find_route(const HttpRequest& request, std::optional<Refusal>& refusal) const {
  const Route* found = nullptr;
  std::string allowed;
  for (const Route& r : routes()) {
    const std::string_view path = r.path;
    const bool prefix = path.size() > 1 && path.back() == '/';
    if (prefix ? !request.path.starts_with(path) || request.path.size() == path.size() : request.path != path) continue;
    allowed += (allowed.empty() ? "" : ", ") + std::string(r.method);
    if (request.method == r.method || (request.method == "HEAD" && std::string_view(r.method) == "GET")) found = &r;
  }
  if (found) {
    if (auto refused = refuse(request, *found)) refusal = Refusal{std::move(*refused), {}};
  } else if (allowed.empty()) {
    refusal = Refusal{{404, fmt::format("there is no route {}", request.path)}, {}};
  } else {
    refusal =
        Refusal{{405, fmt::format("{} takes {}, not {}", request.path, allowed, request.method)}, {{"allow", allowed}}};
  }
  return found;
}

// What a client does not want to be traced is not. A trace that it has begun goes on.
std::shared_ptr<RequestSpan> Api::span_of(const HttpRequest& request, const Route& route) const {
  if (!options_.spans || !options_.spans->on() || !route.traced()) return nullptr;
  const auto parent = parse_traceparent(request.header("traceparent"));
  if (parent && !parent->sampled) return nullptr;
  auto out = std::make_shared<RequestSpan>(*options_.spans, parent, route.traced(), request.method, route.path);
  out->model(serving_.model->name);
  return out;
}

std::shared_ptr<Reply> Api::counted(std::shared_ptr<Reply> reply, const HttpRequest& request, Headers& headers,
                                    std::shared_ptr<RequestSpan> span) {
  const std::string id = request_id(request);
  headers.emplace_back("x-request-id", id);
  if (error_form(request) == ErrorForm::Anthropic) headers.emplace_back("request-id", id);
  for (auto& header : cors_headers(request, options_.cors_origins)) headers.push_back(std::move(header));
  static const std::vector<std::string> names = route_names();
  const std::string_view route = route_for_log(names, request.path);
  const KeyRules* rules = rules_of(request);
  std::function<void(int)> answered;
  if (rules) answered = [this, name = rules->name](int status) { ++key_counts_[name].requests[status]; };
  RequestLogFile* const log_file = options_.request_log && options_.request_log->on() ? options_.request_log : nullptr;
  OrderedJson trace;
  if (span)
    trace = {{"trace_id", span->trace()}};
  else if (const auto parent = parse_traceparent(request.header("traceparent")))
    trace = {{"trace_id", parent->trace}};
  auto out = std::make_shared<CountedReply>(std::move(reply), request, id, serving_.metrics, active_,
                                            options_.access_log, log_file, route, std::move(answered), std::move(span));
  if (!trace.is_null()) out->note(trace, false);
  if (rules) out->note({{"key", rules->name}}, false);
  return out;
}

bool Api::answer_preflight(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  if (!is_preflight(request) || !origin_is_allowed(request, options_.cors_origins)) return false;
  Headers headers;
  const auto to = counted(reply, request, headers);
  for (auto& header : preflight_headers(request)) headers.push_back(std::move(header));
  to->send(204, "", "", headers);
  return true;
}

bool Api::turn_away(const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
  if (answer_preflight(request, reply)) return true;
  std::optional<Refusal> refusal;
  find_route(request, refusal);
  if (!refusal) return false;
  const auto to = counted(reply, request, refusal->headers);
  refusal->error.send(*to, refusal->headers, error_form(request));
  return true;
}

void Api::handle(HttpRequest request, std::shared_ptr<Reply> reply) {
  if (answer_preflight(request, reply)) return;
  Headers headers;
  std::optional<Refusal> refusal;
  const Route* route = find_route(request, refusal);
  const auto span = refusal ? nullptr : span_of(request, *route);
  reply = counted(std::move(reply), request, headers, span);
  if (refusal) {
    for (auto& header : headers) refusal->headers.push_back(std::move(header));
    return refusal->error.send(*reply, refusal->headers, error_form(request));
  }
  Call call{std::move(request), std::move(reply), headers, route->dialect, span};
  (this->*route->run)(call);
}

}  // namespace reprise::server
