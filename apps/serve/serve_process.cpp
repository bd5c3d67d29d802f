#include "serve/serve_process.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <thread>

#include "base/elapsed.h"
#include "base/log.h"
#include "common/terminal.h"
#include "common/text_model.h"
#include "server/metrics.h"

namespace reprise::apps {
namespace {

using Clock = std::chrono::steady_clock;

// Threads that read long bodies and compile grammars, and how many such requests wait for one.
constexpr int kReaders = 2;
constexpr size_t kMostUnread = 256;
constexpr std::chrono::seconds kLetGo{20};  // for a lost device

sigset_t end_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

server::GraphPhase phase_of(const char* name, const engine::StepRunner* runner) {
  server::GraphPhase out;
  out.phase = name;
  if (!runner) return out;
  out.mode = graph_mode_name(runner->mode());
  const engine::PhaseStats& s = runner->stats();
  out.replays = s.replays_by_size;
  for (const auto& [reason, n] : s.fallbacks) out.fallbacks[reason] = n;
  out.padding_tokens = s.padded_rows;
  return out;
}

server::GraphNumbers numbers_of(const engine::Engine& e) {
  server::GraphNumbers n;
  n.phases = {phase_of("decode", e.decode_runner()), phase_of("prefill", e.prefill_runner())};
  const engine::LoadTimes times = e.load_times();
  n.load_s = times.load_s;
  n.compile_s = times.compile_s;
  n.capture_s = times.capture_s;
  const engine::MemoryReport memory = e.memory();
  n.planned_bytes = memory.activation_bytes;
  n.weight_bytes = memory.weight_bytes;
  n.kv_bytes = memory.kv_bytes;
  const engine::EngineCounters c = e.counters();
  n.verified = c.checked;
  n.verify_failures = c.differences;
  n.steps = c.steps;
  n.host_s = c.host_s;
  return n;
}

std::string name_of(const std::string& path) {
  std::filesystem::path p(path);
  if (p.filename().empty()) p = p.parent_path();
  return p.filename().string();
}

server::ServedModel served_model(const ServeOptions& o, const engine::Engine& e, const TextModel& text) {
  server::ServedModel m;
  m.path = o.model.model_path;
  m.name = o.served_model_name.empty() ? name_of(m.path) : o.served_model_name;
  if (text.tokenizer()) m.tokenizer = *text.tokenizer();
  m.chat_template = text.chat_template() ? &*text.chat_template() : nullptr;
  if (!text.template_problem().is_ok()) m.chat_template_problem = text.template_problem().message();
  if (m.chat_template) {
    const std::string& source = m.chat_template->source();
    m.tool_format = o.tool_call_parser == "auto" ? server::tool_format_of_template(source)
                                                 : server::parse_tool_format(o.tool_call_parser).value();
    m.reasoning =
        o.reasoning_parser == "auto" ? source.find("</think>") != std::string::npos : o.reasoning_parser != "none";
  }
  m.defaults = text.defaults();
  for (int64_t id : e.config().eos_token_ids) m.eos_tokens.push_back(static_cast<int32_t>(id));
  m.context_length = e.context_length();
  m.vocab_size = e.vocab_size();
  m.created = static_cast<int64_t>(std::time(nullptr));
  return m;
}

Json info_of(const ServeOptions& o, const engine::Engine& e, const server::ServedModel& m) {
  return {{"model_path", m.path},
          {"served_model_name", m.name},
          {"device", device_kind_name(const_cast<engine::Engine&>(e).device().info().kind)},
          {"dtype", dtype_name(e.dtype())},
          {"context_length", m.context_length},
          {"max_running_requests", o.scheduler.max_running},
          {"max_queued_requests", o.scheduler.max_queued},
          {"max_total_num_tokens", e.memory().kv_pages * kv::kPageTokens},
          {"chunked_prefill_size", e.max_step_tokens()},
          {"schedule_policy", o.scheduler.policy == sched::Policy::Fcfs ? "fcfs" : "lpm"},
          {"disable_radix_cache", !o.scheduler.prefix_cache}};
}

// The tokens as bytes, for answers of a given form; null without a tokenizer.
Result<std::unique_ptr<server::AnswerGrammars>> grammars_of(const server::ServedModel& m) {
  if (!m.tokenizer) return std::unique_ptr<server::AnswerGrammars>();
  std::vector<int32_t> ends = m.eos_tokens;
  for (int64_t id : m.defaults.eos_token_ids) ends.push_back(static_cast<int32_t>(id));
  ASSIGN_OR_RETURN(auto tokens,
                   text::grammar::TokenTable::from_tokenizer(*m.tokenizer, ends, static_cast<size_t>(m.vocab_size)));
  return std::make_unique<server::AnswerGrammars>(std::move(tokens));
}

// The largest batch that decode graphs cover; 0 when nothing is captured, which then is no bound.
int64_t covered(const engine::Engine& e) {
  const engine::StepRunner* r = e.decode_runner();
  return r && !r->sizes().empty() ? r->sizes().back() : 0;
}

// A socket for every connection that may come, and some for files.
void allow_descriptors(int64_t connections) {
  constexpr rlim_t kOthers = 128;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t want = static_cast<rlim_t>(connections) + kOthers;
  if (limit.rlim_cur >= want) return;
  limit.rlim_cur = std::min(want, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < want)
    log::warning("this process may open {} files, too few for --max-connections {}: raise `ulimit -n`", limit.rlim_cur,
                 connections);
}

// Health says so before the first request does.
class TellsLoss final : public sched::Observer {
 public:
  explicit TellsLoss(server::Api& api) : api_(api) {}
  void lost_device(const Status& why) override { api_.fail(why.message()); }

 private:
  server::Api& api_;
};

// A device that hangs may not let go of what it was given; the process ends all the same, with status 1.
void end_within(std::chrono::seconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    log::error("the lost device does not let go; ending without its consent");
    std::_Exit(1);
  }).detach();
}

// Waits for signals, and looks after the scheduler meanwhile.
class Keeper {
 public:
  Keeper(const ServeOptions& options, server::Api& api) : options_(options), api_(api) {}
  ~Keeper() { stop(); }
  void start() {
    thread_ = std::thread([this] { watch(); });
  }
  void stop() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // From now on the end is a drain. A signal that came before ends it here.
  void keep(sched::Scheduler* scheduler) { scheduler_ = scheduler; }
  bool asked_to_end() const { return drain_since_.load() != 0; }

 private:
  void watch() {
    const sigset_t set = end_signals();
    while (!ended_) {
      const timespec tick{0, 100'000'000};
      const int signal = sigtimedwait(&set, nullptr, &tick);
      if (signal > 0) {
        if (asked_to_end()) {
          log::warning("a second signal: ending at once");
          std::_Exit(kSecondSignal);
        }
        drain_since_ = Clock::now().time_since_epoch().count();
        api_.drain();
        sched::Scheduler* s = scheduler_;
        // Nothing is served yet, so nothing can be lost.
        if (!s) std::_Exit(0);
        s->close();
        log::info("shutting down: {} requests may finish within {:g} s; a second signal ends at once",
                  s->stats().running + s->stats().waiting, options_.shutdown_timeout_s);
      }
      if (sched::Scheduler* s = scheduler_) {
        end_when_drained(*s);
        look_for_hangs(*s);
      }
    }
  }

  void end_when_drained(sched::Scheduler& s) {
    if (!asked_to_end() || ended_) return;
    const auto since = Clock::time_point(Clock::duration(drain_since_.load()));
    const double waited = seconds_since(since);
    if (!s.idle() && waited > options_.shutdown_timeout_s && !cut_) {
      cut_ = true;
      log::warning("the shutdown time is over: {} requests are cut short", s.stats().running + s.stats().waiting);
      s.cancel_all();
    }
    if (s.idle()) s.stop();
  }

  void look_for_hangs(sched::Scheduler& s) {
    const auto since = s.stats().step_since;
    if (!since || options_.watchdog_timeout_s <= 0) {
      if (!since) reported_ = {};
      return;
    }
    const double running = seconds_since(*since);
    if (running < options_.watchdog_timeout_s || reported_ == *since) return;
    reported_ = *since;
    const sched::SchedulerStats st = s.stats();
    log::error(
        "step {} has been running for {:.0f} s (--watchdog-timeout {:g}): {} requests run, {} wait, {} of {} KV "
        "pages are free",
        st.steps + 1, running, options_.watchdog_timeout_s, st.running, st.waiting, st.free_pages, st.pages);
  }

  static constexpr int kSecondSignal = 130;
  const ServeOptions& options_;
  server::Api& api_;
  std::thread thread_;
  std::atomic<bool> ended_{false};
  std::atomic<sched::Scheduler*> scheduler_{nullptr};
  std::atomic<Clock::rep> drain_since_{0};
  bool cut_ = false;
  Clock::time_point reported_{};
};

}  // namespace

Status serve(ServeOptions o) {
  const sigset_t set = end_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // in all threads that follow; the keeper asks for them
  std::signal(SIGPIPE, SIG_IGN);
  allow_descriptors(o.http.max_connections);

  server::Api api(o.api);
  ASSIGN_OR_RETURN(auto http, server::HttpServer::listen(o.http, [&](server::HttpRequest request, auto reply) {
                     api.handle(std::move(request), std::move(reply));
                   }));
  api.attach(*http);
  std::thread http_thread([&] { http->run(); });
  Keeper keeper(o, api);
  keeper.start();

  const Status done = [&]() -> Status {
    o.model.serving = true;
    ASSIGN_OR_RETURN(auto engine, open_engine(o.model));
    ASSIGN_OR_RETURN(const TextModel text, TextModel::open(o.model, o.chat_template, *engine));
    server::ServedModel model = served_model(o, *engine, text);
    ASSIGN_OR_RETURN(const auto grammars, grammars_of(model));
    model.grammars = grammars.get();
    o.scheduler.eos_tokens = model.eos_tokens;
    // No more than the graphs cover, unless a flag says so.
    if (o.scheduler.max_running == 0) {
      o.scheduler.max_running = engine->max_step_rows();
      if (const int64_t most = covered(*engine); most > 0 && o.model.max_running_requests == 0)
        o.scheduler.max_running = std::min(o.scheduler.max_running, most);
    }
    server::Metrics metrics(
        model.name, [&] { return numbers_of(*engine); }, engine->expert_use());
    server::SpanTrace spans([&] { return numbers_of(*engine); });
    TellsLoss loss(api);
    sched::Observers observers({&metrics, &spans, &loss});
    sched::Scheduler scheduler(*engine, o.scheduler, &observers);
    server::Profiler profiler(spans, o.profile_dir);
    server::WorkPool workers(kReaders, kMostUnread);
    api.serve({&model, &scheduler, &metrics, info_of(o, *engine, model), &profiler, &workers});
    keeper.keep(&scheduler);
    const std::string host = o.http.host == "0.0.0.0" || o.http.host == "::" ? "127.0.0.1" : o.http.host;
    log::info("serving {} at http://{}:{} (docs: /v1/models, /metrics, /health); Ctrl-C ends", model.name, host,
              http->port());
    if (http->admin_port() > 0) log::info("admin routes at http://127.0.0.1:{}", http->admin_port());
    if (!keeper.asked_to_end()) scheduler.run();
    keeper.stop();
    const Status lost = scheduler.lost();
    if (!lost.is_ok()) end_within(kLetGo);
    // Last words reach their clients before the sockets close.
    for (int i = 0; i < 50 && http->counters().open > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    http->stop();
    http_thread.join();
    log::info("ended after {} requests, {} tokens", scheduler.stats().requests, scheduler.stats().generated_tokens);
    return lost.at("this server has to be started again");
  }();
  if (!done.is_ok()) {
    keeper.stop();
    http->stop();
    if (http_thread.joinable()) http_thread.join();
  }
  return done;
}

}  // namespace reprise::apps
