#include "capi/engine.h"

#include "base/log.h"
#include "server/engine_numbers.h"

namespace reprise::capi {
namespace {

using server::AnswerGrammars;
using server::ServedModel;

Status given_up() { return Status(Code::Cancelled, "opening was given up"); }

// The text of one answer for generate(), and its end.
struct Collected {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::string text;
  std::optional<reprise_error> error;
};

}  // namespace

Result<std::unique_ptr<Loaded>> Loaded::open(const Choices& choices, const Hooks& hooks) {
  auto l = std::make_unique<Loaded>();
  ASSIGN_OR_RETURN(l->engine, api::open_engine(choices.model));
  if (hooks.given_up) return given_up();
  ASSIGN_OR_RETURN(api::TextModel text, api::TextModel::open(choices.model, choices.chat_template, *l->engine));
  l->text.emplace(std::move(text));
  server::ServedText t;
  t.path = choices.model.model_path;
  t.name = choices.served_model_name.empty() ? api::short_name(t.path) : choices.served_model_name;
  t.tokenizer = l->text->tokenizer();
  if (l->text->chat_template()) t.chat_template = &*l->text->chat_template();
  if (!l->text->template_problem().is_ok()) t.chat_template_problem = l->text->template_problem().message();
  t.tool_call_parser = choices.tool_call_parser;
  t.reasoning_parser = choices.reasoning_parser;
  t.defaults = l->text->defaults();
  l->model = ServedModel::of(t, *l->engine);
  ASSIGN_OR_RETURN(l->grammars, AnswerGrammars::of(l->model));
  l->model.grammars = l->grammars.get();
  if (l->engine->adapters().slots() > 0) {
    l->adapters = std::make_unique<sched::AdapterTable>(l->engine->adapters());
    l->model.adapters = l->adapters.get();
    RETURN_IF_ERROR(api::load_adapters(choices.model, *l->adapters));
  }
  l->metrics = std::make_unique<server::Metrics>(
      l->model.name, [e = l->engine.get()] { return server::numbers_of(*e); }, l->engine->expert_use());
  ASSIGN_OR_RETURN(sched::SchedulerOptions options, choices.scheduler());
  options.eos_tokens = l->model.eos_tokens;
  options.log_failures = false;  // their requests hear of them
  l->scheduler = std::make_unique<sched::Scheduler>(*l->engine, options, l->metrics.get());
  return l;
}

Engine::Engine(const Values& given, Hooks& hooks, EventFunction on_event)
    : given_(given), hooks_(hooks), on_event_(std::move(on_event)) {}

Result<std::unique_ptr<Engine>> Engine::open(const Values& given, Hooks& hooks, EventFunction on_event) {
  std::unique_ptr<Engine> e(new Engine(given, hooks, std::move(on_event)));
  RETURN_IF_ERROR(e->choices_.set(given));
  hooks.least = e->choices_.level();
  RETURN_IF_ERROR(e->choices_.check());
  e->choices_.model.progress = e->choices_.model.hub.progress = true;
  e->choices_.model.hub.stop = [&hooks] { return hooks.given_up.load(); };
  if (!e->on_event_) {
    ASSIGN_OR_RETURN(e->queue_, EventQueue::make());
    e->on_event_ = [queue = e->queue_.get()](std::unique_ptr<EventBox> event) { queue->push(std::move(event)); };
  }
  if (e->choices_.model.watchdog_timeout)
    log::notice("`watchdog_timeout`: the library has no watchdog; effective: off");
  if (!e->own_thread()) {
    ASSIGN_OR_RETURN(e->loaded_, Loaded::open(e->choices_, hooks));
    return e;
  }
  std::promise<Status> opened;
  std::future<Status> done = opened.get_future();
  e->thread_ = start_thread(
      "engine", [engine = e.get(), opened = std::move(opened)]() mutable { engine->live(std::move(opened)); });
  RETURN_IF_ERROR(done.get());
  return e;
}

// The engine's thread: opens, runs, and takes apart.
void Engine::live(std::promise<Status> opened) {
  inside_ = std::this_thread::get_id();
  try {
    auto loaded = Loaded::open(choices_, hooks_);
    if (!loaded.is_ok()) return opened.set_value(loaded.status());
    loaded_ = std::move(*loaded);
  } catch (const std::bad_alloc&) {
    return opened.set_value(Status(Code::OutOfMemory, "there is no memory left"));
  } catch (const std::exception& e) {
    return opened.set_value(Status(Code::Internal, fmt::format("an exception: {}", e.what())));
  }
  opened.set_value(Status::ok());
  loaded_->scheduler->run();
  // A lost device ends run(), not the engine: it may still be asked.
  for (;;) {
    run_jobs();
    std::unique_lock lock(jobs_mutex_);
    jobs_arrived_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (closing_ && jobs_.empty()) break;
  }
  loaded_.reset();
}

Engine::~Engine() {
  if (thread_.joinable()) {
    if (loaded_) loaded_->scheduler->stop();  // before the thread may take it apart
    {
      std::lock_guard lock(jobs_mutex_);
      closing_ = true;
    }
    jobs_arrived_.notify_all();
    thread_.join();
  }
  loaded_.reset();
}

bool Engine::here() const { return inside_.load() == std::this_thread::get_id(); }

void Engine::run_jobs() {
  std::vector<std::function<void()>> jobs;
  {
    std::lock_guard lock(jobs_mutex_);
    jobs.swap(jobs_);
  }
  for (const auto& job : jobs) job();
}

// On the thread that has the engine, between steps; waits for it.
void Engine::run_there(std::function<void()> what) {
  if (here()) return what();
  if (!own_thread()) {
    std::lock_guard lock(steps_);
    return what();
  }
  std::promise<void> done;
  {
    std::lock_guard lock(jobs_mutex_);
    jobs_.emplace_back([&] {
      what();
      done.set_value();
    });
  }
  jobs_arrived_.notify_all();
  loaded_->scheduler->post([this] { run_jobs(); });
  done.get_future().get();
}

Failure Engine::submit(const reprise_request* request, uint64_t* id) {
  auto a = std::make_shared<Answering>();
  RETURN_IF_FAILURE(read_call(a->call, request, model(), static_cast<uint64_t>(choices_.model.random_seed)));
  a->tell = on_event_;
  RETURN_IF_FAILURE(add(a));
  if (id) *id = a->id;
  return {};
}

Failure Engine::add(std::shared_ptr<Answering> a) {
  const server::GenerateCall& c = a->call.call;
  a->running = c.n;
  a->ended = [this](uint64_t id) {
    std::lock_guard lock(live_mutex_);
    live_.erase(id);
  };
  const text::Tokenizer* tokenizer = model().tokenizer ? &*model().tokenizer : nullptr;
  std::lock_guard lock(live_mutex_);  // so that none of them ends before its id is known
  a->id = ++last_id_;
  std::vector<sched::RequestId> ids;
  for (int i = 0; i < static_cast<int>(c.n); ++i) {
    sched::Request r;
    r.name = c.id;
    r.prompt = c.prompts.front();
    r.images = c.images;
    r.sampling = c.sampling;
    r.sampling.seed += static_cast<uint64_t>(i);  // each answer draws its own
    r.priority = c.priority;
    r.call = a->id;
    r.deadline = c.deadline;
    r.adapter = c.adapter;
    r.cache_salt = c.cache_salt;
    r.prompt_logprobs = a->call.prompt_logprobs >= 0;
    r.several = c.n > 1;
    Status refused;
    if (c.grammar) {
      auto constraint = server::make_constraint(c.grammar);
      refused = constraint.status();
      if (constraint) r.constraint = std::move(*constraint);
    }
    r.sink = std::make_unique<AnswerSink>(a, i, tokenizer);
    if (refused.is_ok()) {
      auto added = loaded_->scheduler->add(std::move(r));
      refused = added.status();
      if (added) ids.push_back(*added);
    }
    if (refused.is_ok()) continue;
    a->refused = true;
    for (const sched::RequestId id : ids) loaded_->scheduler->cancel(id);
    return refused;
  }
  live_.emplace(a->id, std::move(ids));
  return {};
}

void Engine::cancel(uint64_t id) {
  std::lock_guard lock(live_mutex_);
  const auto at = live_.find(id);
  if (at == live_.end()) return;
  for (const sched::RequestId one : at->second) loaded_->scheduler->cancel(one);
}

Failure Engine::step(bool& worked) {
  worked = false;
  if (own_thread())
    return {invalid("reprise_step() is for an engine without a thread (`engine_thread` off)"), "engine_thread"};
  if (here()) return {invalid("reprise_step() was called from a hook of itself"), ""};
  std::unique_lock lock(steps_, std::try_to_lock);
  if (!lock) return Failure(error(Code::Busy, "another thread is in reprise_step(); one at a time may be"));
  inside_ = std::this_thread::get_id();
  struct Leave {
    std::atomic<std::thread::id>& inside;
    ~Leave() { inside = std::thread::id(); }
  } leave{inside_};
  worked = loaded_->scheduler->step();
  return loaded_->scheduler->lost();
}

Failure Engine::wait(std::mutex& mutex, std::condition_variable& ended, const std::function<bool()>& done) {
  if (own_thread()) {
    std::unique_lock lock(mutex);
    ended.wait(lock, done);
    return {};
  }
  for (bool worked = true;;) {
    {
      std::lock_guard lock(mutex);
      if (done()) return {};
    }
    Failure stepped = step(worked);
    if (!stepped.is_ok() && stepped.status.code() != Code::DeviceLost) return stepped;
  }
}

Failure Engine::generate(const reprise_request* request, std::string& text) {
  if (here()) return Failure(invalid("reprise_generate() waits, which a hook may not"), "");
  auto a = std::make_shared<Answering>();
  RETURN_IF_FAILURE(read_call(a->call, request, model(), static_cast<uint64_t>(choices_.model.random_seed)));
  if (a->call.call.n != 1)
    return {invalid("answers: {}; reprise_generate() gives one, reprise_submit() several", a->call.call.n), "answers"};
  auto kept = std::make_shared<Collected>();
  a->tell = [kept](std::unique_ptr<EventBox> event) {
    std::lock_guard lock(kept->mutex);
    const reprise_event& e = event->sealed();
    kept->text.append(e.text.data, e.text.size);
    if (e.kind != REPRISE_FINISHED) return;
    if (e.error) kept->error = *e.error;
    kept->done = true;
    kept->ended.notify_all();
  };
  RETURN_IF_FAILURE(add(a));
  if (Failure stopped = wait(kept->mutex, kept->ended, [&] { return kept->done; }); !stopped.is_ok()) {
    cancel(a->id);
    return stopped;
  }
  if (kept->error) return {Status(static_cast<Code>(kept->error->code), kept->error->message), kept->error->place};
  text = std::move(kept->text);
  return {};
}

Failure Engine::load_adapter(const std::string& name, const std::string& path) {
  sched::AdapterTable* adapters = loaded_->adapters.get();
  if (!adapters)
    return {error(Code::Unsupported, "the model was opened without slots for adapters; `enable_lora` keeps some"),
            "enable_lora"};
  const sched::AdapterPlace place{name, path};
  if (name.empty() || name == model().name)
    return {invalid("name: \"{}\"; allowed: one that is not the model's", name), "name"};
  const auto prepared = adapters->read(place);
  if (!prepared) return {prepared.status(), "path"};
  Status loaded;
  run_there([&] { loaded = adapters->insert(place, *prepared).status(); });
  if (!loaded.is_ok()) return {loaded, "max_loras"};
  return {};
}

Failure Engine::unload_adapter(const std::string& name) {
  if (!loaded_->adapters) return {error(Code::NotFound, "there is no adapter \"{}\"; loaded: none", name), "name"};
  const auto removed = loaded_->adapters->remove(name);
  if (!removed) return {removed.status(), "name"};
  return {};
}

Failure Engine::describe(const std::string& what, std::string& out) {
  Result<std::string> text = std::string();
  std::exception_ptr thrown;
  run_there([&] {
    try {
      text = text_of(what);
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  if (thrown) std::rethrow_exception(thrown);
  if (!text) return {text.status(), "what"};
  out = std::move(*text);
  return {};
}

}  // namespace reprise::capi
