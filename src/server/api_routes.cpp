#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "server/api_call.h"
#include "server/call_reader.h"
#include "server/dates.h"
#include "server/fields.h"
#include "server/ids.h"
#include "server/messages_reader.h"
#include "server/metric_text.h"
#include "server/page/web_page.h"
#include "server/pooled_job.h"
#include "server/request_body.h"

namespace reprise::server {

// docs/openapi.json, in a file that CMake makes.
extern const unsigned char kOpenApiBytes[];
extern const size_t kOpenApiSize;

namespace {

constexpr const char* kVersion = REPRISE_VERSION;  // of CMake's project()

OrderedJson model_card(const ServedModel& m) {
  return {{"id", m.name},
          {"object", "model"},
          {"created", m.created},
          {"owned_by", "reprise"},
          {"root", m.path},
          {"parent", nullptr},
          {"max_model_len", m.context_length}};
}

// vLLM's card of an adapter.
OrderedJson adapter_card(const ServedModel& m, const sched::Adapter& a) {
  OrderedJson card = model_card(m);
  card["id"] = a.name;
  card["created"] = a.created;
  card["root"] = a.path;
  card["parent"] = m.name;
  return card;
}

OrderedJson anthropic_card(const ServedModel& m) {
  return {{"type", "model"},
          {"id", m.name},
          {"display_name", m.name},
          {"created_at", date_of(m.created)},
          {"max_input_tokens", m.context_length},
          {"max_tokens", m.context_length}};
}

// An answer that is an error.
auto failing(ApiError error) {
  return [error = std::move(error)](const auto& call) { call.fail(error); };
}

constexpr size_t kLarge = 128 * 1024;

// What a body may ask for that takes long to read: much text, images, or a grammar to be compiled, under one of its
// names or with a letter of the name written as an escape. A body that only looks so is read a little later.
bool may_take_long(std::string_view body) {
  constexpr size_t kShort = 32 * 1024;
  constexpr std::string_view kNames[] = {"response_format",    "json_schema", "regex", "guided_",
                                         "structured_outputs", "tool",        "image", "\\u00"};
  return body.size() > kShort || std::any_of(std::begin(kNames), std::end(kNames),
                                             [&](std::string_view n) { return body.find(n) != body.npos; });
}

// The earlier one of the field `timeout` and the header X-Request-Timeout, which a proxy may add.
std::optional<ApiError> set_deadline(GenerateCall& call, const HttpRequest& request,
                                     std::chrono::steady_clock::time_point arrived) {
  const std::string_view header = request.header("x-request-timeout");
  if (!header.empty()) {
    double seconds = 0;
    const auto [end, problem] = std::from_chars(header.data(), header.data() + header.size(), seconds);
    if (problem != std::errc() || end != header.data() + header.size() ||
        !(seconds >= kShortestTimeout && seconds <= kLongestTimeout))
      return ApiError{400, fmt::format("X-Request-Timeout: \"{}\" is not a number of seconds from {} to {:.0f}", header,
                                       kShortestTimeout, kLongestTimeout)};
    call.timeout_s = std::min(call.timeout_s.value_or(seconds), seconds);
  }
  if (call.timeout_s)
    call.deadline = arrived + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                  std::chrono::duration<double>(*call.timeout_s));
  return std::nullopt;
}

}  // namespace

void Api::send(Call& call, WebPage page) {
  for (auto& header : call.headers) page.headers.push_back(std::move(header));
  call.reply->send(200, "text/html; charset=utf-8", std::move(page.html), page.headers);
}

void Api::page(Call& call) { send(call, live_page()); }
void Api::docs(Call& call) { send(call, docs_page()); }

void Api::health(Call& call) {
  if (state_ == ServerState::Loading || state_ == ServerState::Failed) return call.fail(not_serving());
  call.json({{"status", state_ == ServerState::Serving ? "ok" : "draining"}});
}

void Api::ready(Call& call) {
  if (leaving_ && state_ == ServerState::Serving) return call.fail({503, "the server is about to shut down"});
  if (state_ == ServerState::Serving) return call.json({{"status", "ready"}});
  call.fail(not_serving());
}

// Alive: a supervisor that restarted it would only lose a load or a drain.
void Api::live(Call& call) {
  if (state_ == ServerState::Failed) return call.fail(not_serving());
  static constexpr const char* kNames[] = {"loading", "serving", "draining"};
  call.json({{"status", "alive"}, {"state", kNames[static_cast<size_t>(state_.load())]}});
}

namespace {

// Tells those who wait for a token that it came, or why it did not.
class ProbeReply final : public Reply {
 public:
  explicit ProbeReply(std::function<void(int, const std::string&)> answer) : answer_(std::move(answer)) {}
  void send(int status, std::string_view, std::string body, const Headers&) override { answer_(status, body); }
  void begin(int, std::string_view, const Headers&) override {}
  void write(std::string) override {}
  void end() override {}
  void on_gone(std::function<void()>) override {}
  bool gone() const override { return false; }

 private:
  std::function<void(int, const std::string&)> answer_;
};

}  // namespace

// All who ask while one token is being made wait for that one, so that probes are no load.
void Api::health_generate(Call& call) {
  if (leaving_) return ready(call);
  probes_.push_back(std::make_shared<Call>(call));
  if (probes_.size() > 1) return;
  GenerateCall g;
  g.kind = CallKind::Native;
  g.id = make_id("probe-");
  g.prompts = {{serving_.model->eos_tokens.empty() ? 0 : serving_.model->eos_tokens.front()}};
  g.prompt_texts = {""};
  g.sampling.temperature = 0;
  g.sampling.max_new_tokens = 1;
  g.sampling.ignore_eos = true;
  auto reply = std::make_shared<ProbeReply>([this](int status, const std::string& body) {
    for (const auto& probe : std::exchange(probes_, {})) {
      if (status == 200)
        probe->json({{"status", "ready"}});
      else
        probe->reply->send(status, "application/json", body, probe->headers);
    }
  });
  if (serving_.model->pooled_size > 0) return probe_pooled(std::move(reply));
  const JobContext context{*serving_.model, *serving_.scheduler, *http_, options_.ping_every};
  Job::start(context, native_dialect(), std::move(g), std::move(reply), {}, [](const Job&) {});
}

void Api::apply_template(Call& call) {
  read(call, [this](const std::string& text) -> Answer {
    ApiError error;
    const auto body = body_of<OrderedJson>(text, options_.limits, stopping_, error);
    if (!body) return failing(error);
    const ParsedCall parsed = parse_chat(*body, *serving_.model, options_.limits);
    if (const auto* wrong = std::get_if<ApiError>(&parsed)) return failing(*wrong);
    return [prompt = std::get<GenerateCall>(parsed).prompt_texts.front()](Call& c) { c.json({{"prompt", prompt}}); };
  });
}

void Api::version(Call& call) { call.json({{"version", kVersion}}); }

void Api::openapi(Call& call) {
  call.reply->send(200, "application/json", {reinterpret_cast<const char*>(kOpenApiBytes), kOpenApiSize}, call.headers);
}

void Api::models(Call& call) {
  const ServedModel& m = *serving_.model;
  const bool anthropic = call.errors == ErrorForm::Anthropic;
  const OrderedJson card = anthropic ? anthropic_card(m) : model_card(m);
  std::vector<sched::AdapterPtr> adapters;
  if (m.adapters) adapters = m.adapters->list();
  const auto card_of = [&](const sched::Adapter& a) {
    if (!anthropic) return adapter_card(m, a);
    OrderedJson other = card;
    other["id"] = other["display_name"] = a.name;
    return other;
  };
  const std::string_view prefix = "/v1/models/";
  if (call.request.path.starts_with(prefix)) {
    const std::string name = call.request.path.substr(prefix.size());
    if (name == m.name) return call.json(card);
    for (const auto& a : adapters)
      if (a->name == name) return call.json(card_of(*a));
    return call.fail({404, fmt::format("the model \"{}\" is not served here; there is {}", name, served_names(m)),
                      "model", "model_not_found"});
  }
  OrderedJson cards = OrderedJson::array({card});
  for (const auto& a : adapters) cards.push_back(card_of(*a));
  const std::string last = cards.back()["id"];
  if (anthropic)
    return call.json({{"data", std::move(cards)}, {"has_more", false}, {"first_id", m.name}, {"last_id", last}});
  call.json({{"object", "list"}, {"data", std::move(cards)}});
}

void Api::model_info(Call& call) {
  const ServedModel& m = *serving_.model;
  call.json({{"model_path", m.path},
             {"tokenizer_path", m.path},
             {"served_model_name", m.name},
             {"is_generation", true},
             {"context_length", m.context_length},
             {"vocab_size", m.vocab_size}});
}

void Api::server_info(Call& call) {
  OrderedJson out = serving_.info;
  out["version"] = kVersion;
  OrderedJson& states = out["internal_states"] = OrderedJson::array();
  for (const sched::SchedulerStats& s : serving_.scheduler->each())
    states.push_back({{"running", s.running},
                      {"waiting", s.waiting},
                      {"kv_pages", s.pages},
                      {"kv_pages_free", s.free_pages},
                      {"kv_pages_cached", s.cached_pages}});
  call.json(out);
}

void Api::requests(Call& call) {
  std::vector<RequestRecord> running;
  for (const auto& [name, entry] : jobs_)
    if (const auto job = entry.prompt ? nullptr : entry.job.lock()) running.push_back(job->record());
  call.json(log_.json(std::move(running)));
}

void Api::metrics(Call& call) {
  call.reply->send(200, "text/plain; version=0.0.4; charset=utf-8",
                   serving_.metrics->text(serving_.scheduler->each(), http_->counters(), active_) + key_metrics() +
                       adapter_metrics() + trace_metrics(),
                   call.headers);
}

std::string Api::key_metrics() const {
  const auto label = &MetricText::label;
  MetricText t(label("model_name", serving_.model->name));
  t.family("reprise:config_reloads_total", "counter", "Times that the files of settings and keys were read anew.");
  t.sample(static_cast<double>(reloads_), label("result", "ok"));
  t.sample(static_cast<double>(refused_reloads_), label("result", "refused"));
  ledger_.add_metrics(t);
  return t.take();
}

std::string Api::trace_metrics() const {
  if (!options_.spans) return "";
  MetricText t(MetricText::label("model_name", serving_.model->name));
  t.single("reprise:otlp_sent_total", "counter", static_cast<double>(options_.spans->sent()),
           "Spans that the collector took.");
  t.single("reprise:otlp_dropped_total", "counter", static_cast<double>(options_.spans->dropped()),
           "Spans that were not sent, or not taken.");
  return t.take();
}

void Api::read(Call& call, std::function<Answer(const std::string& body)> reader) {
  if (!serving_.workers || !may_take_long(call.request.body)) return reader(call.request.body)(call);
  auto apart = std::make_shared<Call>(std::move(call));
  // The last to hold the call is the HTTP thread, where its reply belongs.
  const bool taken = serving_.workers->add([apart, http = http_, reader = std::move(reader)]() mutable {
    Answer answer = reader(apart->request.body);
    // Each thread has its own heap; what the largest bodies needed does not stay with every one of them.
    if (apart->request.body.size() > kLarge) ::malloc_trim(0);
    http->post([apart = std::move(apart), answer = std::move(answer)] { answer(*apart); });
  });
  if (!taken) apart->fail({503, "too many requests with long bodies, or with forms of answers, wait to be read"});
}

void Api::tokenize(Call& call) {
  read(call, [this](const std::string& body) { return tokens_of(body); });
}

Api::Answer Api::tokens_of(const std::string& text_of_body) const {
  ApiError error;
  const auto body = body_of<OrderedJson>(text_of_body, options_.limits, stopping_, error);
  if (!body) return failing(error);
  const ServedModel& m = *serving_.model;
  if (!m.tokenizer) return failing({400, "this model has no tokenizer"});
  const Json plain = *body;
  Fields f(plain);
  std::vector<int32_t> ids;
  if (f.has("messages")) {
    ParsedCall parsed = parse_chat(*body, m, options_.limits);
    if (auto* wrong = std::get_if<ApiError>(&parsed)) return failing(*wrong);
    ids = std::move(std::get<GenerateCall>(parsed).prompts.front());
  } else {
    // vLLM's, SGLang's and llama.cpp's names.
    if (!f.has("prompt") && !f.has("text") && !f.has("content")) f.fail("prompt", "it is required");
    const std::string text = f.text("prompt", f.text("text", f.text("content", "")));
    const bool special = f.flag("add_special_tokens", f.flag("add_special", true));
    if (f.error()) return failing(*f.error());
    auto encoded = m.tokenizer->encode(text, {.add_special_tokens = special});
    if (!encoded) return failing(ApiError::from(encoded.status()));
    ids = std::move(*encoded);
  }
  return [out = OrderedJson{{"tokens", ids}, {"count", ids.size()}, {"max_model_len", m.context_length}}](Call& call) {
    call.json(out);
  };
}

void Api::detokenize(Call& call) {
  read(call, [this](const std::string& body) { return text_of(body); });
}

Api::Answer Api::text_of(const std::string& text_of_body) const {
  ApiError error;
  const auto body = body_of<Json>(text_of_body, options_.limits, stopping_, error);
  if (!body) return failing(error);
  const ServedModel& m = *serving_.model;
  if (!m.tokenizer) return failing({400, "this model has no tokenizer"});
  Fields f(*body);
  if (!f.has("tokens")) f.fail("tokens", "it is required");
  const auto ids = f.ids("tokens", size_t{1} << 24, m.vocab_size);
  const bool skip = f.flag("skip_special_tokens", false);
  if (f.error()) return failing(*f.error());
  auto text = m.tokenizer->decode(ids, skip);
  if (!text) return failing(ApiError::from(text.status()));
  return [text = *text](Call& call) { call.json({{"prompt", text}, {"text", text}, {"content", text}}); };
}

void Api::tokenizer_info(Call& call) {
  const ServedModel& m = *serving_.model;
  if (!m.tokenizer) return call.fail({404, "this model has no tokenizer"});
  const auto token = [&](int32_t id) -> OrderedJson {
    const auto text = m.tokenizer->id_to_token(id);
    return text ? OrderedJson(*text) : OrderedJson(nullptr);
  };
  call.json({{"bos_token", token(m.tokenizer->bos_id())},
             {"eos_token", token(m.tokenizer->eos_id())},
             {"unk_token", token(m.tokenizer->unk_id())},
             {"pad_token", token(m.tokenizer->pad_id())},
             {"chat_template", m.chat_template ? OrderedJson(m.chat_template->source()) : OrderedJson(nullptr)}});
}

// Two requests of one id could not be told apart by who aborts one.
std::optional<ApiError> Api::refuse_ids(const GenerateCall& call) const {
  const auto taken = [&](const std::string& id) -> std::optional<ApiError> {
    if (!jobs_.contains(id)) return std::nullopt;
    return ApiError{400, fmt::format("a request with the id \"{}\" is running already", id), "rid", "duplicate_id"};
  };
  if (auto refused = taken(call.id)) return refused;
  for (const std::string& id : call.prompt_ids)
    if (auto refused = taken(id)) return refused;
  return std::nullopt;
}

CallLimits Api::limits_for(const HttpRequest& request) const {
  CallLimits out = options_.limits;
  if (const KeyRules* rules = gate_.rules_of(request); rules && rules->priority)
    out.default_priority = *rules->priority;
  return out;
}

KeyLedger::Wish Api::wish_of(const HttpRequest& request, const GenerateCall& g, int64_t answers) const {
  KeyLedger::Wish wish;
  wish.rules = gate_.rules_of(request);
  if (gate_.asks_for_key()) wish.key = Gate::key_of(request);
  wish.answers = answers;
  wish.most_answers = options_.most_answers_of_key;
  for (const auto& prompt : g.prompts) {
    const auto size = static_cast<int64_t>(prompt.size());
    wish.tokens += g.n * (size + std::min(g.sampling.max_new_tokens, serving_.model->context_length - size));
  }
  return wish;
}

void Api::start(Call& call, ParsedCall parsed) {
  if (auto* wrong = std::get_if<ApiError>(&parsed)) return call.fail(*wrong);
  if (const auto& asked = std::get<GenerateCall>(parsed); asked.nothing)
    return call.json(call.dialect->writer(*serving_.model, asked)->whole({}));
  GenerateCall g = std::move(std::get<GenerateCall>(parsed));
  if (call.span) call.span->model(name_in_answers(*serving_.model, g));
  if (const auto wrong = set_deadline(g, call.request, call.arrived)) return call.fail(*wrong);
  if (const auto refused = refuse_ids(g)) return call.fail(*refused);
  KeyLedger::Entry entry;
  const int64_t answers = static_cast<int64_t>(g.prompts.size()) * g.n;
  if (const auto refused = ledger_.enter(wish_of(call.request, g, answers), call.headers, entry))
    return call.fail(*refused);
  serving_.metrics->called(g.n);
  auto names = std::make_shared<std::vector<std::string>>();
  const JobContext context{*serving_.model,     *serving_.scheduler, *http_,
                           options_.ping_every, call.span,           options_.log_prompts};
  auto job = Job::start(context, *call.dialect, std::move(g), call.reply, call.headers,
                        [this, names, entry](const Job& ended) {
                          for (const std::string& id : *names) jobs_.erase(id);
                          RequestRecord record = ended.record();
                          ledger_.leave(entry, record.prompt_tokens, record.generated_tokens);
                          log_.add(std::move(record));
                        });
  if (!job) return ledger_.leave(entry, 0, 0);
  for (auto& [id, prompt] : job->names()) {
    jobs_[id] = {job, prompt};
    names->push_back(id);
  }
}

void Api::generate(Call& call) {
  if (const auto refused = refuse_to_generate(*serving_.model)) return call.fail(*refused);
  read(call, [this, dialect = call.dialect, limits = limits_for(call.request)](const std::string& text) -> Answer {
    ApiError error;
    const auto body = body_of<OrderedJson>(text, options_.limits, stopping_, error);
    if (!body) return failing(error);
    return [this, parsed = dialect->parse(*body, *serving_.model, limits)](Call& c) mutable {
      start(c, std::move(parsed));
    };
  });
}

void Api::response(Call& call) {
  call.fail({404,
             "responses are not kept: there is nothing to be fetched, and no state that a request could go on from",
             "response_id", "not_found"});
}

void Api::count_tokens(Call& call) {
  read(call, [this](const std::string& text) -> Answer {
    ApiError error;
    const auto body = body_of<OrderedJson>(text, options_.limits, stopping_, error);
    if (!body) return failing(error);
    const ParsedCall parsed = parse_messages_to_count(*body, *serving_.model, options_.limits);
    if (const auto* wrong = std::get_if<ApiError>(&parsed)) return failing(*wrong);
    return [tokens = std::get<GenerateCall>(parsed).prompts.front().size()](Call& c) {
      c.json({{"input_tokens", tokens}});
    };
  });
}

void Api::embeddings(Call& call) {
  const std::string_view path = call.request.path;
  read_pooled(call, path == "/api/embed"        ? PooledForm::OllamaEmbed
                    : path == "/api/embeddings" ? PooledForm::OllamaEmbeddings
                                                : PooledForm::Embeddings);
}
void Api::rerank(Call& call) { read_pooled(call, PooledForm::Rerank); }
void Api::score(Call& call) { read_pooled(call, PooledForm::Score); }

void Api::read_pooled(Call& call, PooledForm form) {
  read(call, [this, form, limits = limits_for(call.request)](const std::string& text) -> Answer {
    ApiError error;
    const auto body = body_of<Json>(text, options_.limits, stopping_, error);
    if (!body) return failing(error);
    auto parsed = parse_pooled(*body, form, *serving_.model, limits);
    if (const auto* wrong = std::get_if<ApiError>(&parsed)) return failing(*wrong);
    return [this, parsed = std::get<PooledCall>(std::move(parsed))](Call& c) mutable {
      start_pooled(c, std::move(parsed));
    };
  });
}

// Keys and deadlines are those of calls that generate nothing.
void Api::start_pooled(Call& call, PooledCall parsed) {
  GenerateCall g;
  g.prompts = parsed.texts;
  g.timeout_s = parsed.timeout_s;
  g.sampling.max_new_tokens = 0;
  if (const auto wrong = set_deadline(g, call.request, call.arrived)) return call.fail(*wrong);
  KeyLedger::Entry entry;
  if (const auto refused = ledger_.enter(wish_of(call.request, g, 0), call.headers, entry)) return call.fail(*refused);
  serving_.metrics->called(1);
  const JobContext context{*serving_.model,     *serving_.scheduler, *http_,
                           options_.ping_every, call.span,           options_.log_prompts};
  PooledJob::start(context, std::move(parsed), g.deadline, call.reply, call.headers, call.errors,
                   [this, entry](int64_t tokens) { ledger_.leave(entry, tokens, 0); });
}

// A text of one token, or a pair.
void Api::probe_pooled(std::shared_ptr<Reply> reply) {
  PooledCall call;
  call.id = make_id("probe-");
  call.model_name = serving_.model->name;
  call.texts = {{0}};
  call.second_kinds = {INT64_MAX};
  const JobContext context{*serving_.model, *serving_.scheduler, *http_, options_.ping_every};
  PooledJob::start(context, std::move(call), std::nullopt, std::move(reply), {}, ErrorForm::OpenAi, [](int64_t) {});
}

void Api::flush_cache(Call& call) {
  // The cache is the scheduler's; the answer waits for the end of its step.
  HttpServer& http = *http_;
  auto reply = std::make_shared<Call>(std::move(call));
  serving_.scheduler->flush_cache([&http, reply = std::move(reply)](int64_t pages) mutable {
    http.post([reply = std::move(reply), pages] { reply->json({{"success", true}, {"pages", pages}}); });
  });
}

void Api::abort_request(Call& call) {
  ApiError error;
  const auto body =
      body_of<Json>(call.request.body.empty() ? "{}" : call.request.body, options_.limits, stopping_, error);
  if (!body) return call.fail(error);
  Fields f(*body);
  const bool all = f.flag("abort_all", false);
  const std::string id = f.text("rid", f.text("request_id", ""));
  if (!all && id.empty()) f.fail("rid", "the id of a request, or \"abort_all\": true, is expected");
  if (f.error()) return call.fail(*f.error());
  int64_t aborted = 0;
  const auto abort = [&](const Running& running) {
    const auto job = running.job.lock();
    if (!job) return;
    job->abort(running.prompt);
    ++aborted;
  };
  if (all) {
    for (const auto& [name, running] : jobs_)
      if (!running.prompt) abort(running);
  } else if (const auto found = jobs_.find(id); found != jobs_.end()) {
    abort(found->second);
  }
  if (!all && aborted == 0) return call.fail({404, fmt::format("there is no running request \"{}\"", id), "rid"});
  call.json({{"success", true}, {"aborted", aborted}});
}

void Api::start_profile(Call& call) {
  ApiError error;
  const auto body =
      body_of<Json>(call.request.body.empty() ? "{}" : call.request.body, options_.limits, stopping_, error);
  if (!body) return call.fail(error);
  Fields f(*body);
  if (f.has("output_dir"))
    f.fail("output_dir", "requests do not choose where files go; --profile-dir of the server does");
  const int64_t steps = f.integer("num_steps", 0, 0, int64_t{1} << 32);
  if (f.error()) return call.fail(*f.error());
  if (!serving_.profiler) return call.fail({400, "this server does not record profiles"});
  const Status started = serving_.profiler->start(steps);
  if (!started.is_ok()) return call.fail({started.code() == Code::Busy ? 409 : 400, started.message()});
  call.json({{"success", true}, {"num_steps", steps > 0 ? OrderedJson(steps) : OrderedJson(nullptr)}});
}

void Api::stop_profile(Call& call) {
  if (!serving_.profiler) return call.fail({400, "this server does not record profiles"});
  // The answer waits for the file.
  auto waiting = std::make_shared<Call>(call);
  const Status stopped = serving_.profiler->stop([waiting, &http = *http_](Result<std::string> name) mutable {
    http.post([waiting = std::move(waiting), name = std::move(name)] {
      if (name)
        waiting->json({{"success", true}, {"file", *name}});
      else
        waiting->fail(ApiError::from(name.status()));
    });
  });
  if (!stopped.is_ok()) call.fail({stopped.code() == Code::Busy ? 409 : 400, stopped.message()});
}

}  // namespace reprise::server
