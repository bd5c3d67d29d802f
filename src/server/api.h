// Api: what the server's routes do. It asks the gate who may have which, and hands generating calls to jobs.
//
// Everything but state(), drain(), fail() and serve() happens on the HTTP thread, except that workers read what may
// take long. A server listens before its model is loaded: until serve() gives it something to serve, it answers 503.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sched/replicas.h"
#include "server/api_options.h"
#include "server/gate.h"
#include "server/generate_call.h"
#include "server/http_server.h"
#include "server/job.h"
#include "server/key_ledger.h"
#include "server/metrics.h"
#include "server/page/web_page.h"
#include "server/pooled_call.h"
#include "server/profiler.h"
#include "server/request_log.h"
#include "server/request_log_file.h"
#include "server/served_model.h"
#include "server/span_exporter.h"
#include "server/work_pool.h"

namespace reprise::server {

enum class ServerState : uint8_t { Loading, Serving, Draining, Failed };

// What there is to serve; all of it outlives the server's threads.
struct Serving {
  const ServedModel* model = nullptr;
  sched::Replicas* scheduler = nullptr;
  Metrics* metrics = nullptr;
  Json info;                                // of /server_info
  Profiler* profiler = nullptr;             // null: none
  WorkPool* workers = nullptr;              // they end before the HTTP server; null: the HTTP thread does all
  sched::AdapterTable* adapters = nullptr;  // null: none are served
};

class Api {
 public:
  explicit Api(ApiOptions options) : options_(std::move(options)) { ledger_.replace(options_.keys); }
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  // Once, before the HTTP server runs.
  void attach(HttpServer& http) { http_ = &http; }
  void serve(const Serving& serving);  // any thread, once
  void change(LiveOptions options);    // any thread, between requests
  void count_reload(bool ok);          // any thread
  void leave();                        // any thread: /readyz says so, and requests are still taken
  void drain();  // any thread: nothing new is taken, and what is being read is not read to its end
  // Any thread, once: nothing works any more, health says so, and why.
  void fail(std::string why);
  ServerState state() const { return state_.load(); }

  // Before a request's body is read: true when it is turned away, which then has been answered.
  bool turn_away(const HttpRequest& request, const std::shared_ptr<Reply>& reply);
  void handle(HttpRequest request, std::shared_ptr<Reply> reply);

  // "GET /health" and so on; docs/openapi.json describes each.
  static std::vector<std::string> route_names();

 private:
  struct Call;
  struct Route;
  static const std::vector<Route>& routes();
  static const RouteTable& table();

  struct Refusal {
    ApiError error;
    Headers headers;
  };
  ApiError not_serving() const;
  // The route that is asked for, or why it is not taken.
  const Route* find_route(const HttpRequest& request, std::optional<Refusal>& refusal) const;
  std::shared_ptr<Reply> counted(std::shared_ptr<Reply> reply, const HttpRequest& request, Headers& headers,
                                 std::shared_ptr<RequestSpan> span = nullptr);
  // The trace of a request, where it gets one.
  std::shared_ptr<RequestSpan> span_of(const HttpRequest& request, const Route& route) const;

  static void send(Call& call, WebPage page);
  void page(Call& call);
  void docs(Call& call);
  void health(Call& call);
  void ready(Call& call);
  void live(Call& call);
  void health_generate(Call& call);
  void load(Call& call);
  void loads(Call& call);
  void apply_template(Call& call);
  void models(Call& call);
  void load_adapter(Call& call);
  void unload_adapter(Call& call);
  std::string adapter_metrics() const;
  std::string trace_metrics() const;
  void version(Call& call);
  void openapi(Call& call);
  void model_info(Call& call);
  void server_info(Call& call);
  void requests(Call& call);
  void metrics(Call& call);
  void tokenize(Call& call);
  void detokenize(Call& call);
  void tokenizer_info(Call& call);
  void generate(Call& call);
  void response(Call& call);
  void count_tokens(Call& call);
  void ollama_version(Call& call);
  void ollama_tags(Call& call);
  void ollama_running(Call& call);
  void ollama_show(Call& call);
  void ollama_manages_no_models(Call& call);
  void embeddings(Call& call);
  void rerank(Call& call);
  void score(Call& call);
  void flush_cache(Call& call);
  void abort_request(Call& call);
  void start_profile(Call& call);
  void stop_profile(Call& call);

  // A browser's question whether a page of an allowed origin may send something.
  bool answer_preflight(const HttpRequest& request, const std::shared_ptr<Reply>& reply);

  // What answers a call that has been read.
  using Answer = std::function<void(Call&)>;
  // Reads the call's body where that holds up no other call, and answers on the HTTP thread.
  void read(Call& call, std::function<Answer(const std::string& body)> reader);
  Answer tokens_of(const std::string& body) const;
  Answer text_of(const std::string& body) const;
  void start(Call& call, ParsedCall parsed);
  void read_pooled(Call& call, PooledForm form);
  void start_pooled(Call& call, PooledCall parsed);
  void probe_pooled(std::shared_ptr<Reply> reply);
  // What a call asks of its key.
  KeyLedger::Wish wish_of(const HttpRequest& request, const GenerateCall& g, int64_t answers) const;
  CallLimits limits_for(const HttpRequest& request) const;
  std::string key_metrics() const;
  std::optional<ApiError> refuse_ids(const GenerateCall& call) const;

  ApiOptions options_;
  KeyLedger ledger_;
  const Gate gate_{options_, ledger_.ring()};
  HttpServer* http_ = nullptr;
  std::atomic<ServerState> state_{ServerState::Loading};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> stopping_{false};  // what workers read is given up
  std::string failure_;                // written before the state says Failed
  Serving serving_;
  std::atomic<int64_t> active_{0};  // requests whose answer is not complete; the last replies go after the HTTP thread
  struct Running {
    std::weak_ptr<Job> job;
    std::optional<size_t> prompt;  // the id is of that one alone
  };
  std::unordered_map<std::string, Running> jobs_;  // by id
  RequestLog log_;
  uint64_t reloads_ = 0, refused_reloads_ = 0;
  std::vector<std::shared_ptr<Call>> probes_;  // that wait for one token
};

}  // namespace reprise::server
