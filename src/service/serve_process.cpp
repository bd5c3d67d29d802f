#include "service/serve_process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "api/device_choice.h"
#include "api/text_model.h"
#include "base/elapsed.h"
#include "base/file.h"
#include "base/log_form.h"
#include "engine/shared_step.h"
#include "hub/digest.h"
#include "sched/together.h"
#include "server/engine_numbers.h"
#include "server/metrics.h"
#include "service/notifier.h"
#include "service/rank_processors.h"
#include "service/reload.h"
#include "service/replica.h"
#include "service/span_post.h"
#include "service/supervisor.h"
#include "settings/setting.h"

namespace reprise::service {

using namespace api;

namespace {

// Threads that read long bodies and compile grammars, and how many such requests wait for one.
constexpr int kReaders = 2;
constexpr size_t kMostUnread = 256;
constexpr std::chrono::seconds kLetGo{20};     // for a lost device
constexpr std::chrono::seconds kLastWork{5};   // for threads that read requests that get no answer
constexpr std::chrono::seconds kLastSpans{2};  // for a collector that is slow

// A socket that a supervisor listens on for this process (sd_listen_fds(3)); the variables are for this process alone.
Result<std::optional<int>> passed_socket() {
  constexpr int kFirst = 3;
  const char *pid = std::getenv("LISTEN_PID"), *count = std::getenv("LISTEN_FDS");
  if (!pid || !count || std::to_string(::getpid()) != pid) return std::optional<int>();
  const std::string n = count;
  ::unsetenv("LISTEN_PID");
  ::unsetenv("LISTEN_FDS");
  ::unsetenv("LISTEN_FDNAMES");
  if (n != "1") return invalid("LISTEN_FDS={}: one socket is expected", n);
  ::fcntl(kFirst, F_SETFD, FD_CLOEXEC);
  return std::optional<int>(kFirst);
}

// The file, or those of the folder with weights and what describes them, in order.
std::vector<std::filesystem::path> files_of(const std::string& source) {
  namespace fs = std::filesystem;
  std::error_code failed;
  if (!fs::is_directory(source, failed)) return {source};
  std::vector<fs::path> out;
  for (fs::directory_iterator it(source, failed), end; !failed && it != end; it.increment(failed))
    if (const auto ending = it->path().extension(); ending == ".safetensors" || ending == ".json")
      out.push_back(it->path());
  std::sort(out.begin(), out.end());
  return out;
}

server::WeightFacts weights_of(const engine::Engine& e) {
  server::WeightFacts w;
  const checkpoint::ModelConfigFields& config = e.config();
  w.architecture = config.family && !config.family->gguf.name.empty() ? std::string(config.family->gguf.name)
                   : config.model_type.empty()                        ? config.architecture
                                                                      : config.model_type;
  w.type = dtype_name(e.dtype());
  if (const_cast<engine::Engine&>(e).device().info().kind != DeviceKind::Cpu) w.device_bytes = e.memory().weight_bytes;
  w.bytes = e.memory().weight_bytes;
  w.modified = static_cast<int64_t>(std::time(nullptr));
  const checkpoint::Checkpoint* c = e.checkpoint();
  if (!c) return w;
  w.format = c->format() == checkpoint::Checkpoint::Format::Gguf ? "gguf" : "safetensors";
  w.bytes = c->total_bytes();
  std::map<std::string, int64_t> by_type;
  for (const auto& t : c->tensors()) w.parameters += t.elements(), by_type[t.type_name] += t.elements();
  int64_t most = 0;
  for (const auto& [type, n] : by_type)
    if (n > most) most = n, w.type = type;
  auto digest = hub::Digest::make(hub::Digest::Kind::Sha256);
  w.modified = 0;
  for (const auto& file : files_of(c->source())) {
    struct stat s {};
    if (::stat(file.c_str(), &s) != 0) continue;
    w.modified = std::max<int64_t>(w.modified, s.st_mtim.tv_sec);
    if (digest)
      digest->add(
          fmt::format("{} {} {}.{:09}\n", file.filename().string(), s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec));
  }
  if (digest) w.digest = digest->hex();
  return w;
}

server::ServedModel served_model(const ServeOptions& o, const engine::Engine& e, const TextModel& text) {
  server::ServedText t;
  t.path = o.model.model_path;
  t.name = o.served_model_name.empty() ? short_name(t.path) : o.served_model_name;
  t.tokenizer = text.tokenizer();
  t.chat_template = text.chat_template() ? &*text.chat_template() : nullptr;
  if (!text.template_problem().is_ok()) t.chat_template_problem = text.template_problem().message();
  t.tool_call_parser = o.tool_call_parser;
  t.reasoning_parser = o.reasoning_parser;
  t.defaults = text.defaults();
  if (o.sampling_defaults == "openai") {
    t.defaults = {};
    t.defaults.eos_token_ids = text.defaults().eos_token_ids;
  }
  server::ServedModel m = server::ServedModel::of(t, e);
  m.weights = weights_of(e);
  return m;
}

Json info_of(const ServeOptions& o, const engine::Engine& e, const server::ServedModel& m) {
  return {{"model_path", m.path},
          {"served_model_name", m.name},
          {"device", device_kind_name(const_cast<engine::Engine&>(e).device().info().kind)},
          {"dtype", dtype_name(e.dtype())},
          {"tp_size", e.options().member ? e.options().member->world().size : 1},
          {"ep_size", e.options().ep_size},
          {"dp_size", o.model.dp_size},
          {"load_balance_method", std::string(sched::balance_name(o.balance))},
          {"context_length", m.context_length},
          {"max_running_requests", o.scheduler.max_running},
          {"max_queued_requests", o.scheduler.max_queued},
          {"max_total_num_tokens", e.memory().kv_pages * kv::kPageTokens},
          {"chunked_prefill_size", e.max_step_tokens()},
          {"max_prefill_tokens", o.model.max_prefill_tokens.value_or(sched::kMaxPrefillTokens)},
          {"mixed_prefill_tokens", o.model.mixed_prefill_tokens.value_or(sched::kMixedPrefillTokens)},
          {"schedule_policy", std::string(sched::policy_name(o.scheduler.policy))},
          {"watchdog_timeout", o.watchdog_timeout_s},
          {"disable_radix_cache", !o.scheduler.prefix_cache}};
}

// The largest batch that decode graphs cover; 0 when nothing is captured, which then is no bound.
int64_t covered(const engine::Engine& e) {
  const engine::StepRunner* r = e.runner("decode");
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
    log::warning("this process may open {} files, too few for `max_connections` {}: raise `ulimit -n`", limit.rlim_cur,
                 connections);
}

// Health says so before the first request does.
class DeviceLossObserver final : public sched::Observer {
 public:
  explicit DeviceLossObserver(server::Api& api) : api_(api) {}
  void lost_device(const Status& why) override {
    if (!told_.exchange(true)) api_.fail(settings::as_flags(why.message()));
  }

 private:
  server::Api& api_;
  std::atomic<bool> told_{false};
};

// The process ends even where something does not: a device that hangs and does not let go of what it was given, a
// thread that is still reading a request.
void end_within(std::chrono::seconds time, int status, const char* why) {
  std::thread([=] {
    std::this_thread::sleep_for(time);
    log::error("{}; exiting anyway", why);
    std::_Exit(status);
  }).detach();
}

// What a flag asks for and the model, the device or the memory does not give.
std::vector<std::string> shortfalls(const ServeOptions& o, const engine::Engine& e, const server::ServedModel& m) {
  std::vector<std::string> out;
  if (const int64_t asked = o.model.max_running_requests; asked > o.scheduler.max_running)
    out.push_back(
        fmt::format("`max_running_requests` {}: a step holds fewer; effective: {}", asked, o.scheduler.max_running));
  if (const auto asked = o.model.max_prefill_tokens; asked && *asked > e.max_step_tokens())
    out.push_back(fmt::format("`max_prefill_tokens` {}: a step holds {} tokens (`chunked_prefill_size`)", *asked,
                              e.max_step_tokens()));
  if (m.chat_template) return out;
  for (const auto& [key, value] :
       {std::pair{"tool_call_parser", o.tool_call_parser}, std::pair{"reasoning_parser", o.reasoning_parser}})
    if (value != "auto" && value != "none")
      out.push_back(fmt::format("`{}` {} has no effect: the model has no chat template", key, value));
  return out;
}

server::Metrics metrics_of(const std::string& model, const engine::Engine& first, const Replicas& others) {
  std::vector<std::function<server::GraphNumbers()>> numbers;
  std::vector<const engine::ExpertUse*> experts;
  const auto add = [&](const engine::Engine& e) {
    numbers.emplace_back([&e] { return server::numbers_of(e); });
    if (e.expert_use()) experts.push_back(e.expert_use());
  };
  add(first);
  for (const auto& r : others) add(r->engine());
  return {model, std::move(numbers), std::move(experts)};
}

// No more than the graphs cover, unless a flag says so.
void choose_most_running(ServeOptions& o, const engine::Engine& e) {
  if (o.scheduler.max_running != 0) return;
  o.scheduler.max_running = e.max_step_rows();
  if (const int64_t most = covered(e); most > 0 && o.model.max_running_requests == 0)
    o.scheduler.max_running = std::min(o.scheduler.max_running, most);
}

void say(const std::vector<std::string>& notices) {
  for (const std::string& text : notices) log::notice("{}", text);
}

// A request for the model could not be told from one for an adapter of the same name.
Status check_adapter_names(const RunSettings& settings, const server::ServedModel& model) {
  for (const std::string& text : settings.lora_modules)
    if (const auto place = sched::parse_adapter_place(text); place && (place->name == model.name))
      return invalid("`lora_modules` {}: that is the name of the model itself; `served_model_name` gives it another",
                     place->name);
  return Status::ok();
}

// --check: everything that the command line alone tells.
Status say_what_settings_mean(const ServeOptions& o) {
  say(o.notices);
  say(o.model.plain_notices());
  ASSIGN_OR_RETURN(const GraphMeaning said, o.model.graph.meaning(o.model.limits()));
  for (const Notice& n : said.notices) log::notice("{}", n.text);
  for (const Notice& n : device_notices(o.model.device, o.model.ascend_runtime)) log::notice("{}", n.text);
  log::info("the command line is valid; nothing was started (`check`)");
  return Status::ok();
}

// The schedulers of all replicas: the first's, which the caller runs, and those of the others' threads.
struct Schedulers {
  Schedulers(const ServeOptions& o, engine::Engine& engine, sched::Observer* observer)
      : shared(engine), first(shared.parts() > 1 ? shared.part(0) : engine, of_part(o, 0), observer) {}

  // Those of the parts that share the engine's steps, which one thread runs.
  void add_parts(const ServeOptions& o, sched::Observer* observer) {
    for (int part = 1; part < shared.parts(); ++part) {
      const auto index = static_cast<size_t>(part);
      parts.push_back(std::make_unique<sched::Scheduler>(shared.part(part), of_part(o, index), observer));
      all.push_back(parts.back().get());
      threads.push_back(::pthread_self());
    }
  }
  void run() {
    if (parts.empty()) return first.run();
    sched::Together(all, bell).run();
    Status lost;
    for (const sched::Scheduler* s : all)
      if (lost.is_ok()) lost = s->lost();
    for (sched::Scheduler* s : all) s->share_loss(lost);
  }

  sched::SchedulerOptions of_part(const ServeOptions& o, size_t part) {
    sched::SchedulerOptions out = of_replica(o, part);
    if (shared.parts() > 1) {
      out.bell = &bell;
      out.max_running = std::max<int64_t>(1, out.max_running / shared.parts());
    }
    return out;
  }
  static sched::SchedulerOptions of_replica(const ServeOptions& o, size_t replica) {
    sched::SchedulerOptions out = o.scheduler;
    out.first_id = replica + 1;
    out.id_step = static_cast<sched::RequestId>(o.model.dp_size);
    return out;
  }

  sched::Bell bell;
  engine::SharedStep shared;
  sched::Scheduler first;
  std::vector<std::unique_ptr<sched::Scheduler>> parts;
  std::vector<sched::Scheduler*> all{&first};
  std::vector<pthread_t> threads{::pthread_self()};
};

void schedule(const Replicas& others, const ServeOptions& o, server::Metrics& metrics, DeviceLossObserver& loss,
              Schedulers& out) {
  for (const auto& r : others) {
    const size_t index = out.all.size();
    out.all.push_back(
        &r->schedule(Schedulers::of_replica(o, index),
                     std::make_unique<sched::Observers>(std::vector<sched::Observer*>{&metrics.of(index), &loss})));
    out.threads.push_back(r->thread());
  }
}

void say_where(const ServeOptions& o, const std::string& model, const server::HttpServer& http) {
  const std::string host = o.http.host == "0.0.0.0" || o.http.host == "::" ? "127.0.0.1" : o.http.host;
  const std::string place = o.http.inherited && http.port() == 0 ? "the socket that was passed on"
                            : http.port() == 0                   ? o.http.host
                                                                 : fmt::format("http://{}:{}", host, http.port());
  log::info("serving {} at {} (docs: /docs, /metrics, /health); Ctrl-C ends", model, place);
  if (http.admin_port() > 0) log::info("admin routes at http://127.0.0.1:{}", http.admin_port());
}

void say_limits(const ServeOptions& o) {
  log::info(
      "requests: policy {}, at most {} at a time, prompts of a step {} tokens beyond the first, {} beside "
      "decoding; watchdog {:g} s",
      sched::policy_name(o.scheduler.policy), o.scheduler.max_running,
      o.model.max_prefill_tokens.value_or(sched::kMaxPrefillTokens),
      o.model.mixed_prefill_tokens.value_or(sched::kMixedPrefillTokens), o.watchdog_timeout_s);
}

// HTTP on a thread of its own, until this ends.
class HttpThread {
 public:
  explicit HttpThread(server::HttpServer& http) : http_(http), thread_([this] { http_.run(); }) {}
  ~HttpThread() { end(); }
  HttpThread(const HttpThread&) = delete;
  HttpThread& operator=(const HttpThread&) = delete;
  // Last words reach their clients before the sockets close.
  void drain() {
    for (int i = 0; i < 50 && http_.counters().open > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  void end() {
    http_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  server::HttpServer& http_;
  std::thread thread_;
};

// Opens the model and serves it until the supervisor, or a loss, ends that.
Status serve_model(ServeOptions& o, server::Api& api, server::HttpServer& http, HttpThread& http_thread,
                   Supervisor& supervisor) {
  o.model.serving = true;
  ranks::Processors processors = ranks::Processors::allowed();
  if (const int64_t replicas = o.model.replicas(); replicas > 1) {
    ASSIGN_OR_RETURN(processors, processors_of(o.model, static_cast<int>(replicas * o.model.tp_size)));
    take_share(o.model, processors);
  }
  ASSIGN_OR_RETURN(auto engine, open_engine(o.model));
  ASSIGN_OR_RETURN(const Replicas others,
                   open_other_replicas(o.model, engine->memory().kv_pages * kv::kPageTokens, processors));
  if (!others.empty())
    log::info("replicas: {}; a request goes to one of them (`load_balance_method` {})", o.model.dp_size,
              sched::balance_name(o.balance));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(o.model, o.chat_template, *engine));
  server::ServedModel model = served_model(o, *engine, text);
  ASSIGN_OR_RETURN(const auto grammars, server::AnswerGrammars::of(model));
  model.grammars = grammars.get();
  sched::AdapterTable adapters(engine->adapters());  // before the schedulers, whose requests hold adapters
  if (adapters.slots() > 0) model.adapters = &adapters;
  RETURN_IF_ERROR(check_adapter_names(o.model, model));
  RETURN_IF_ERROR(load_adapters(o.model, adapters));
  o.scheduler.eos_tokens = model.eos_tokens;
  choose_most_running(o, *engine);
  say_limits(o);
  say(o.notices);
  say(shortfalls(o, *engine, model));
  server::Metrics metrics = metrics_of(model.name, *engine, others);
  server::SpanTrace spans([&] { return server::numbers_of(*engine); });
  DeviceLossObserver loss(api);
  sched::Observers observers({&metrics, &spans, &loss});
  Schedulers schedulers(o, *engine, &observers);
  schedulers.add_parts(o, &observers);
  schedule(others, o, metrics, loss, schedulers);
  sched::Replicas all(schedulers.all, o.balance);
  server::Profiler profiler(spans, o.profile_dir);
  server::WorkPool workers(kReaders, kMostUnread);
  api.serve({&model, &all, &metrics, info_of(o, *engine, model), &profiler, &workers,
             adapters.slots() > 0 ? &adapters : nullptr});
  http.accept_inherited();
  supervisor.keep(&all, std::move(schedulers.threads));
  say_where(o, model.name, http);
  supervisor.say_ready(model.name);
  if (!supervisor.asked_to_end()) {
    for (const auto& r : others) r->run([&all] { return all.lost(); });
    schedulers.run();
  }
  schedulers.first.share_loss(all.lost());
  all.stop();
  supervisor.let_go();
  const Status lost = all.lost().is_ok() ? lost_rank(o.model.fronts) : all.lost();
  if (!lost.is_ok()) supervisor.say_lost(lost);
  if (lost.is_ok())
    end_within(kLastWork, 0, "a request is still being read");
  else
    end_within(kLetGo, 1, "the lost device does not release its resources");
  for (const auto& r : others) r->wait_stopped();
  http_thread.drain();
  http_thread.end();
  o.api.spans->finish(kLastSpans);
  const sched::SchedulerStats stats = all.stats();
  for (const auto& r : others) r->end();  // what they tell of and to goes next
  log::info("ended after {} requests, {} tokens", stats.requests, stats.generated_tokens);
  return lost.at("this server has to be started again");
}

}  // namespace

Result<std::vector<server::KeyRules>> read_keys(const std::string& path) {
  ASSIGN_OR_RETURN(const auto content, read_file(path, size_t{16} << 20));
  auto keys = server::KeyRing::parse(content);
  if (!keys) return keys.status().at("`api_keys_file` " + path);
  return keys;
}

Status serve(ServeOptions o) {
  if (o.check) return say_what_settings_mean(o);
  log::set_form(o.log_form());
  ASSIGN_OR_RETURN(const Notifier notifier, Notifier::of_environment());
  o.supervised = notifier.asked();
  const sigset_t set = signals_of(o);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // in all threads that follow; the supervisor asks for them
  std::signal(SIGPIPE, SIG_IGN);
  allow_descriptors(o.http.max_connections);

  ASSIGN_OR_RETURN(const std::unique_ptr<server::RequestLogFile> request_log,
                   server::RequestLogFile::open(o.request_log, o.api.log_prompts));
  if (o.api.log_prompts)
    log::warning("`log_prompts`: what clients ask and what they are answered is written to {}", o.request_log);
  o.api.request_log = request_log.get();
  server::SpanExporter spans(span_resource(), {});
  o.api.spans = &spans;
  RETURN_IF_ERROR(point_spans_to(spans, o.otlp_endpoint));
  if (spans.on()) log::info("traces of requests go to {} (`otlp_endpoint`)", *otlp_url(o.otlp_endpoint));
  ASSIGN_OR_RETURN(o.http.inherited, passed_socket());
  std::optional<server::Api> made;  // before the server runs
  ASSIGN_OR_RETURN(
      auto http,
      server::HttpServer::listen(
          o.http, [&](server::HttpRequest request, auto reply) { made->handle(std::move(request), std::move(reply)); },
          [&](const server::HttpRequest& request, const auto& reply) { return made->turn_away(request, reply); }));
  // Elsewhere a server has names that only its network can tell.
  if (http->on_loopback() && !o.api.allowed_hosts) o.api.allowed_hosts = std::vector{o.http.host};
  server::Api& api = made.emplace(o.api);
  api.attach(*http);
  HttpThread http_thread(*http);
  Reload reload(o, api, *request_log, spans);
  Supervisor supervisor(o, reload, notifier, api, *http);
  supervisor.start();

  return serve_model(o, api, *http, http_thread, supervisor);
}

}  // namespace reprise::service
