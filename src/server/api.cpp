// Routes, keys and states; the routes themselves are in api_routes.cpp.
#include "server/api.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/log_form.h"
#include "server/api_call.h"
#include "server/cors.h"
#include "server/dates.h"
#include "server/ids.h"

namespace reprise::server {
namespace {

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
      {{"GET", "/", A::Open, false}, &Api::page},
      {{"GET", "/docs", A::Open, false}, &Api::docs},
      {{"GET", "/health", A::Open, false}, &Api::health},
      {{"GET", "/health_generate", A::Open, true}, &Api::health_generate},
      {{"GET", "/livez", A::Open, false}, &Api::live},
      {{"GET", "/readyz", A::Open, false}, &Api::ready},
      {{"GET", "/load", A::Key, true}, &Api::load},
      {{"GET", "/v1/loads", A::Key, true}, &Api::loads},
      {{"POST", "/apply-template", A::Key, true}, &Api::apply_template},
      {{"GET", "/ping", A::Open, false}, &Api::health},
      {{"GET", "/ready", A::Open, false}, &Api::ready},
      {{"GET", "/version", A::Key, false}, &Api::version},
      {{"GET", "/openapi.json", A::Key, false}, &Api::openapi},
      {{"GET", "/v1/models", A::Key, true}, &Api::models},
      {{"GET", "/v1/models/", A::Key, true}, &Api::models},  // and what follows
      {{"GET", "/model_info", A::Key, true}, &Api::model_info},
      {{"GET", "/get_model_info", A::Key, true}, &Api::model_info},
      {{"GET", "/server_info", A::Key, true}, &Api::server_info},
      {{"GET", "/get_server_info", A::Key, true}, &Api::server_info},
      {{"GET", "/metrics", A::Key, true}, &Api::metrics},
      {{"POST", "/tokenize", A::Key, true}, &Api::tokenize},
      {{"POST", "/detokenize", A::Key, true}, &Api::detokenize},
      {{"GET", "/tokenizer_info", A::Key, true}, &Api::tokenizer_info},
      {{"POST", "/v1/completions", A::Key, true}, &Api::generate, &completions_dialect()},
      {{"POST", "/v1/chat/completions", A::Key, true}, &Api::generate, &chat_dialect()},
      {{"POST", "/v1/embeddings", A::Key, true}, &Api::embeddings, nullptr, "embeddings"},
      {{"POST", "/v1/rerank", A::Key, true}, &Api::rerank, nullptr, "rerank"},
      {{"POST", "/v2/rerank", A::Key, true}, &Api::rerank, nullptr, "rerank"},
      {{"POST", "/rerank", A::Key, true}, &Api::rerank, nullptr, "rerank"},
      {{"POST", "/v1/score", A::Key, true}, &Api::score, nullptr, "score"},
      {{"POST", "/score", A::Key, true}, &Api::score, nullptr, "score"},
      {{"POST", "/v1/responses", A::Key, true}, &Api::generate, &responses_dialect()},
      {{"GET", "/v1/responses/", A::Key, false}, &Api::response},  // and what follows
      {{"POST", "/v1/messages", A::Key, true}, &Api::generate, &messages_dialect()},
      {{"POST", "/v1/messages/count_tokens", A::Key, true}, &Api::count_tokens},
      {{"POST", "/api/chat", A::Key, true}, &Api::generate, &ollama_chat_dialect()},
      {{"POST", "/api/generate", A::Key, true}, &Api::generate, &ollama_generate_dialect()},
      {{"POST", "/api/show", A::Key, true}, &Api::ollama_show},
      {{"GET", "/api/tags", A::Key, true}, &Api::ollama_tags},
      {{"GET", "/api/ps", A::Key, true}, &Api::ollama_running},
      {{"GET", "/api/version", A::Key, false}, &Api::ollama_version},
      {{"POST", "/api/embed", A::Key, true}, &Api::embeddings, nullptr, "embeddings"},
      {{"POST", "/api/embeddings", A::Key, true}, &Api::embeddings, nullptr, "embeddings"},
      {{"POST", "/api/pull", A::Key, false}, &Api::ollama_manages_no_models},
      {{"POST", "/api/push", A::Key, false}, &Api::ollama_manages_no_models},
      {{"POST", "/api/create", A::Key, false}, &Api::ollama_manages_no_models},
      {{"POST", "/api/copy", A::Key, false}, &Api::ollama_manages_no_models},
      {{"DELETE", "/api/delete", A::Key, false}, &Api::ollama_manages_no_models},
      {{"POST", "/generate", A::Key, true}, &Api::generate, &native_dialect()},
      {{"GET", "/requests", A::Admin, true}, &Api::requests},
      {{"POST", "/flush_cache", A::Admin, true}, &Api::flush_cache},
      {{"POST", "/reset_prefix_cache", A::Admin, true}, &Api::flush_cache},
      {{"POST", "/abort_request", A::Admin, true}, &Api::abort_request},
      {{"POST", "/v1/load_lora_adapter", A::Admin, true}, &Api::load_adapter},
      {{"POST", "/v1/unload_lora_adapter", A::Admin, true}, &Api::unload_adapter},
      {{"POST", "/load_lora_adapter", A::Admin, true}, &Api::load_adapter},
      {{"POST", "/unload_lora_adapter", A::Admin, true}, &Api::unload_adapter},
      {{"POST", "/start_profile", A::Admin, true}, &Api::start_profile},
      {{"POST", "/stop_profile", A::Admin, true}, &Api::stop_profile},
  };
  return list;
}

const RouteTable& Api::table() {
  static const RouteTable table([] {
    std::vector<const RouteFacts*> out;
    for (const Route& r : routes()) out.push_back(&r);
    return out;
  }());
  return table;
}

std::vector<std::string> Api::route_names() { return table().names(); }

void Api::serve(const Serving& serving) {
  http_->post([this, serving] {
    serving_ = serving;
    if (state_ == ServerState::Loading) state_ = ServerState::Serving;
  });
}

void Api::change(LiveOptions options) {
  http_->post([this, options = std::move(options)]() mutable {
    static_cast<LiveOptions&>(options_) = std::move(options);
    ledger_.replace(options_.keys);
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

const Api::Route* Api::find_route(const HttpRequest& request, std::optional<Refusal>& refusal) const {
  const RouteTable::Match match = table().find(request.method, request.path);
  if (match.route) {
    auto refused = gate_.refuse(request, *match.route);
    if (!refused && match.route->needs_model && state_ != ServerState::Serving) refused = not_serving();
    if (refused) refusal = Refusal{std::move(*refused), {}};
  } else if (match.allowed.empty()) {
    refusal = Refusal{{404, fmt::format("there is no route {}", request.path)}, {}};
  } else {
    refusal = Refusal{{405, fmt::format("{} takes {}, not {}", request.path, match.allowed, request.method)},
                      {{"allow", match.allowed}}};
  }
  return static_cast<const Route*>(match.route);
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
  const std::string_view route = table().path_for_log(request.path);
  const KeyRules* rules = gate_.rules_of(request);
  std::function<void(int)> answered;
  if (rules) answered = [this, name = rules->name](int status) { ledger_.answered(name, status); };
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
