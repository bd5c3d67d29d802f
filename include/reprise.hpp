// The C interface of reprise.h for C++17: values and exceptions in place of handles and codes. Header only: no type of
// the standard library crosses into libreprise.so, so a program may have another one. docs/library.md has examples.
#pragma once

#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reprise.h"

namespace reprise {

// Why a call failed. what() is the library's sentence.
class Error : public std::runtime_error {
 public:
  Error(reprise_code code, const std::string& message, std::string place)
      : std::runtime_error(message), code_(code), place_(std::move(place)) {}
  reprise_code code() const noexcept { return code_; }          // REPRISE_INVALID, ...
  const std::string& place() const noexcept { return place_; }  // the setting or field at fault; "": none
  static Error of(reprise_code code, const reprise_error* e) {
    return {code, e ? reprise_error_message(e) : "there is no memory left", e ? reprise_error_place(e) : ""};
  }

 private:
  reprise_code code_;
  std::string place_;
};

namespace detail {

struct Free {
  void operator()(reprise_error* e) const noexcept { reprise_error_free(e); }
  void operator()(reprise_blob* b) const noexcept { reprise_blob_free(b); }
  void operator()(reprise_settings* s) const noexcept { reprise_settings_free(s); }
  void operator()(reprise_engine* e) const noexcept { reprise_close(e); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// By reference: the call that gives the code also sets the error, in the same list of arguments.
inline void check(reprise_code code, reprise_error* const& error) {
  const Owned<reprise_error> owned(error);
  if (code != REPRISE_OK) throw Error::of(code, error);
}
inline reprise_text text(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view view(reprise_text t) { return t.size ? std::string_view(t.data, t.size) : std::string_view(); }
inline std::string bytes(reprise_blob* blob) {
  const Owned<reprise_blob> owned(blob);
  return std::string(static_cast<const char*>(reprise_blob_data(blob)), reprise_blob_size(blob));
}
inline std::vector<int32_t> ids(reprise_blob* blob) {
  const Owned<reprise_blob> owned(blob);
  const auto* data = static_cast<const int32_t*>(reprise_blob_data(blob));
  return std::vector<int32_t>(data, data + reprise_blob_size(blob) / sizeof(int32_t));
}

}  // namespace detail

// Names and values, Settings{{"model-path", path}, {"threads", "2"}}; each is checked as it is set.
class Settings {
 public:
  Settings(std::initializer_list<std::pair<std::string, std::string>> values = {}) : handle_(reprise_settings_new()) {
    if (!handle_) throw std::bad_alloc();
    for (const auto& [name, value] : values) set(name, value);
  }
  Settings& set(const std::string& name, const std::string& value) {
    reprise_error* e = nullptr;
    detail::check(reprise_settings_set(handle_.get(), name.c_str(), value.c_str(), &e), e);
    return *this;
  }
  Settings& json(std::string_view object) {
    reprise_error* e = nullptr;
    detail::check(reprise_settings_json(handle_.get(), detail::text(object), &e), e);
    return *this;
  }
  static std::string_view table() { return detail::view(reprise_settings_table()); }
  const reprise_settings* handle() const noexcept { return handle_.get(); }

 private:
  detail::Owned<reprise_settings> handle_;
};

// Each may be empty; see reprise_hooks for the threads they are called on. They must not throw.
struct Hooks {
  std::function<void(int level, std::string_view message)> log;
  std::function<bool(const char* stage, uint64_t done, uint64_t total)> progress;  // false: give up opening
  std::function<void(const char* name)> thread;
};

struct Sampling {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, max_tokens, min_tokens;
  std::optional<uint64_t> seed;
  bool ignore_eos = false, keep_special = false, keep_stop = false;
  int logprobs = -1, prompt_logprobs = -1;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;
  std::vector<reprise_scored> bias;
  int form = REPRISE_ANY_FORM;
  std::string form_text;
};

// The prompt is one of the first three.
struct Request {
  std::string prompt;
  std::string messages;  // JSON
  std::vector<int32_t> ids;
  std::string chat;  // JSON: options of messages
  Sampling sampling;
  int priority = 0;
  double deadline_s = 0;
  std::string name, cache_salt;
  std::string adapter;  // name of a loaded LoRA adapter
};

// A copy of what a reprise_event says.
struct Event {
  int kind = REPRISE_TOKENS, finish = REPRISE_RUNNING;
  std::string text, reasoning, calls, stop;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<reprise_scored> top;
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0, reasoning_tokens = 0;
  double queued_s = 0, first_token_s = 0, total_s = 0;
  std::optional<Error> error;

  explicit Event(const reprise_event& e)
      : kind(e.kind),
        finish(e.finish),
        text(detail::view(e.text)),
        reasoning(detail::view(e.reasoning)),
        calls(detail::view(e.calls)),
        stop(detail::view(e.stop)),
        ids(e.ids, e.ids + e.id_count),
        logprobs(e.logprobs, e.logprobs + (e.logprobs ? e.id_count : 0)),
        top(e.top, e.top + (e.top ? e.id_count * e.top_count : 0)),
        prompt_tokens(e.prompt_tokens),
        cached_tokens(e.cached_tokens),
        completion_tokens(e.completion_tokens),
        reasoning_tokens(e.reasoning_tokens),
        queued_s(e.queued_s),
        first_token_s(e.first_token_s),
        total_s(e.total_s) {
    if (e.error) error.emplace(Error::of(reprise_error_code(e.error), e.error));
  }
};

struct Answer {
  std::string text, reasoning, calls, stop;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  int finish = REPRISE_RUNNING;
  int64_t prompt_tokens = 0, cached_tokens = 0;
};

// Rows of `dimension` numbers.
struct Matrix {
  size_t dimension = 0;
  std::vector<float> values;
};

// The events of one answer, for a range-for; the request is cancelled when this goes before its last event was read.
// One thread. The engine outlives it.
class Stream {
 public:
  class iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Event;
    using difference_type = std::ptrdiff_t;
    using pointer = const Event*;
    using reference = const Event&;
    iterator() = default;
    explicit iterator(Stream* stream) : stream_(stream) { ++*this; }
    reference operator*() const { return *event_; }
    pointer operator->() const { return &*event_; }
    iterator& operator++() {
      event_ = stream_->next();
      if (!event_) stream_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& a, const iterator& b) { return a.stream_ == b.stream_; }
    friend bool operator!=(const iterator& a, const iterator& b) { return !(a == b); }

   private:
    Stream* stream_ = nullptr;
    std::optional<Event> event_;
  };

  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) = delete;
  ~Stream() { cancel(); }
  // Waits for it; none behind the last. Throws what the answer failed with, but for a cancellation.
  std::optional<Event> next() {
    if (!shared_ || over_) return std::nullopt;
    std::unique_lock<std::mutex> lock(shared_->mutex);
    shared_->arrived.wait(lock, [this] { return !shared_->events.empty(); });
    Event e = std::move(shared_->events.front());
    shared_->events.pop_front();
    over_ = e.kind == REPRISE_FINISHED;
    if (e.finish == REPRISE_FAILED && e.error) throw *e.error;
    return e;
  }
  void cancel() {
    if (shared_ && !over_) reprise_cancel(engine_, id_);
  }
  iterator begin() { return iterator(this); }
  iterator end() { return iterator(); }

 private:
  friend class Engine;
  struct Shared {
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<Event> events;
  };
  Stream(reprise_engine* engine, std::shared_ptr<Shared> shared) : engine_(engine), shared_(std::move(shared)) {}

  reprise_engine* engine_ = nullptr;
  std::shared_ptr<Shared> shared_;
  uint64_t id_ = 0;
  bool over_ = false;
};

// A loaded model on a thread of its own. Any thread; requests of several run together. The destructor ends what runs
// and comes last.
class Engine {
 public:
  explicit Engine(const Settings& settings, Hooks hooks = {}) : hooks_(std::make_unique<Hooks>(std::move(hooks))) {
    reprise_hooks h{};
    h.size = sizeof h;
    h.context = hooks_.get();
    if (hooks_->log)
      h.log = [](void* c, int32_t level, reprise_text t) { static_cast<Hooks*>(c)->log(level, detail::view(t)); };
    if (hooks_->progress)
      h.progress = [](void* c, const char* stage, uint64_t done, uint64_t total) -> int32_t {
        return !static_cast<Hooks*>(c)->progress(stage, done, total);
      };
    if (hooks_->thread) h.thread = [](void* c, const char* name) { static_cast<Hooks*>(c)->thread(name); };
    h.event = on_event;
    reprise_engine* opened = nullptr;
    reprise_error* e = nullptr;
    detail::check(reprise_open(settings.handle(), &h, &opened, &e), e);
    handle_.reset(opened);
  }

  Stream stream(const Request& request) {
    auto shared = std::make_shared<Stream::Shared>();
    Stream out(handle_.get(), shared);
    // Given back behind the last event.
    auto held = std::make_unique<std::shared_ptr<Stream::Shared>>(shared);
    Filled f(request);
    f.request.context = held.get();
    reprise_error* e = nullptr;
    const reprise_code code = reprise_submit(handle_.get(), &f.request, &out.id_, &e);
    if (code == REPRISE_OK) (void)held.release();
    detail::check(code, e);
    return out;
  }
  Answer generate(const Request& request) {
    Answer a;
    for (const Event& e : stream(request)) {
      a.text += e.text;
      a.reasoning += e.reasoning;
      a.calls += e.calls;
      a.stop += e.stop;
      if (e.kind == REPRISE_TOKENS) {
        a.ids.insert(a.ids.end(), e.ids.begin(), e.ids.end());
        a.logprobs.insert(a.logprobs.end(), e.logprobs.begin(), e.logprobs.end());
      }
      a.finish = e.finish;
      a.prompt_tokens = e.prompt_tokens;
      a.cached_tokens = e.cached_tokens;
    }
    return a;
  }
  std::vector<int32_t> encode(std::string_view text, uint32_t flags = REPRISE_SPECIAL) {
    reprise_blob* out = nullptr;
    reprise_error* e = nullptr;
    detail::check(reprise_encode(handle_.get(), detail::text(text), flags, &out, &e), e);
    return detail::ids(out);
  }
  std::vector<int32_t> encode_chat(std::string_view messages, std::string_view options = {}) {
    reprise_blob* out = nullptr;
    reprise_error* e = nullptr;
    detail::check(reprise_encode_chat(handle_.get(), detail::text(messages), detail::text(options), &out, &e), e);
    return detail::ids(out);
  }
  std::string decode(const std::vector<int32_t>& ids, uint32_t flags = 0) {
    reprise_blob* out = nullptr;
    reprise_error* e = nullptr;
    detail::check(reprise_decode(handle_.get(), ids.data(), ids.size(), flags, &out, &e), e);
    return detail::bytes(out);
  }
  // A LoRA adapter: a folder that PEFT saved.
  void load_adapter(std::string_view name, std::string_view path) {
    reprise_error* e = nullptr;
    detail::check(reprise_load_adapter(handle_.get(), detail::text(name), detail::text(path), &e), e);
  }
  void unload_adapter(std::string_view name) {
    reprise_error* e = nullptr;
    detail::check(reprise_unload_adapter(handle_.get(), detail::text(name), &e), e);
  }
  Matrix embed(const std::vector<std::string>& inputs, const std::string& pooling = "") {
    std::vector<reprise_text> texts;
    for (const std::string& s : inputs) texts.push_back(detail::text(s));
    Matrix m;
    reprise_blob* out = nullptr;
    reprise_error* e = nullptr;
    detail::check(reprise_embed(handle_.get(), texts.data(), texts.size(), pooling.c_str(), &m.dimension, &out, &e), e);
    const detail::Owned<reprise_blob> owned(out);
    const auto* data = static_cast<const float*>(reprise_blob_data(out));
    m.values.assign(data, data + reprise_blob_size(out) / sizeof(float));
    return m;
  }
  // How well each document answers the query.
  std::vector<float> score(std::string_view query, const std::vector<std::string>& documents,
                           const std::string& instruction = "") {
    std::vector<reprise_text> texts;
    for (const std::string& s : documents) texts.push_back(detail::text(s));
    reprise_blob* out = nullptr;
    reprise_error* e = nullptr;
    detail::check(
        reprise_score(handle_.get(), detail::text(query), texts.data(), texts.size(), instruction.c_str(), &out, &e),
        e);
    const detail::Owned<reprise_blob> owned(out);
    const auto* data = static_cast<const float*>(reprise_blob_data(out));
    return std::vector<float>(data, data + reprise_blob_size(out) / sizeof(float));
  }
  // JSON of "model", "settings", "graph", "memory", "counters"; "metrics" is Prometheus' text form.
  std::string describe(const std::string& what) {
    reprise_blob* out = nullptr;
    reprise_error* e = nullptr;
    detail::check(reprise_describe(handle_.get(), what.c_str(), &out, &e), e);
    return detail::bytes(out);
  }
  reprise_engine* handle() noexcept { return handle_.get(); }

 private:
  // A request as the C functions take it; points into the C++ one.
  struct Filled {
    std::vector<reprise_text> stop;
    reprise_sampling sampling{};
    reprise_request request{};

    explicit Filled(const Request& r) {
      const Sampling& s = r.sampling;
      reprise_sampling_init(&sampling, sizeof sampling);
      sampling.temperature = s.temperature.value_or(sampling.temperature);
      sampling.top_p = s.top_p.value_or(sampling.top_p);
      sampling.min_p = s.min_p.value_or(sampling.min_p);
      sampling.repetition_penalty = s.repetition_penalty.value_or(sampling.repetition_penalty);
      sampling.presence_penalty = s.presence_penalty.value_or(sampling.presence_penalty);
      sampling.frequency_penalty = s.frequency_penalty.value_or(sampling.frequency_penalty);
      sampling.top_k = s.top_k.value_or(sampling.top_k);
      sampling.max_tokens = s.max_tokens.value_or(sampling.max_tokens);
      sampling.min_tokens = s.min_tokens.value_or(sampling.min_tokens);
      sampling.seed = s.seed.value_or(0);
      if (s.seed) sampling.flags |= REPRISE_SEEDED;
      if (s.ignore_eos) sampling.flags |= REPRISE_IGNORE_EOS;
      if (s.keep_special) sampling.flags |= REPRISE_KEEP_SPECIAL;
      if (s.keep_stop) sampling.flags |= REPRISE_KEEP_STOP;
      sampling.logprobs = s.logprobs;
      sampling.prompt_logprobs = s.prompt_logprobs;
      for (const std::string& one : s.stop) stop.push_back(detail::text(one));
      sampling.stop = stop.data();
      sampling.stop_count = stop.size();
      sampling.stop_ids = s.stop_ids.data();
      sampling.stop_id_count = s.stop_ids.size();
      sampling.bias = s.bias.data();
      sampling.bias_count = s.bias.size();
      sampling.form = s.form;
      sampling.form_text = detail::text(s.form_text);
      request.size = sizeof request;
      request.ids = r.ids.data();
      request.id_count = r.ids.size();
      request.prompt = detail::text(r.prompt);
      request.messages = detail::text(r.messages);
      request.chat = detail::text(r.chat);
      request.sampling = &sampling;
      request.priority = r.priority;
      request.deadline_s = r.deadline_s;
      request.name = detail::text(r.name);
      request.cache_salt = detail::text(r.cache_salt);
      request.adapter = detail::text(r.adapter);
    }
    Filled(const Filled&) = delete;
    Filled& operator=(const Filled&) = delete;
  };

  static void on_event(void*, const reprise_event* e) {
    auto* held = static_cast<std::shared_ptr<Stream::Shared>*>(e->context);
    const std::shared_ptr<Stream::Shared> shared = *held;
    {
      const std::lock_guard<std::mutex> lock(shared->mutex);
      shared->events.emplace_back(*e);
    }
    shared->arrived.notify_one();
    if (e->kind == REPRISE_FINISHED) delete held;
  }

  std::unique_ptr<Hooks> hooks_;  // where the engine finds it, wherever this moves
  detail::Owned<reprise_engine> handle_;
};

}  // namespace reprise
