// The C functions: each takes its arguments apart inside guarded() and calls what does the work.
#include <reprise.h>

#include <cstdlib>

#include "capi/call.h"
#include "capi/choices.h"
#include "capi/engine.h"
#include "capi/failure.h"

using namespace reprise;
using namespace reprise::capi;

namespace {

Failure missing(const char* what) { return {invalid("{} is NULL", what), what}; }

// Runs `work` on an engine that is there, with its hooks.
template <typename Work>
reprise_code with(reprise_engine* engine, reprise_error** error, const Work& work) {
  return guarded(engine ? &engine->hooks : nullptr, error,
                 [&]() -> Failure { return engine ? work(*engine->engine) : missing("engine"); });
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Failure take_texts(std::vector<std::string>& out, const reprise_text* given, size_t count, const char* name) {
  if (!given && count) return missing(name);
  for (size_t i = 0; i < count; ++i) RETURN_IF_FAILURE(take_text(out.emplace_back(), given[i], name));
  return {};
}

Failure need_tokenizer(const server::ServedModel& model) {
  if (model.tokenizer) return {};
  return Status(Code::Unsupported, "this model has no tokenizer; it takes and gives token ids");
}

void set_hooks(Hooks& out, const reprise_hooks& given) {
  void* context = given.context;
  if (given.log)
    out.log = [log = given.log, context](log::Level level, std::string_view message) {
      log(context, static_cast<int32_t>(level), {message.data(), message.size()});
    };
  if (given.progress)
    out.progress = [progress = given.progress, context](const std::string& stage, uint64_t done, uint64_t total) {
      return progress(context, stage.c_str(), done, total) == 0;
    };
  if (given.thread) out.thread = [thread = given.thread, context](const char* name) { thread(context, name); };
}

}  // namespace

reprise_code reprise_error_code(const reprise_error* error) { return error ? error->code : int{REPRISE_OK}; }
const char* reprise_error_message(const reprise_error* error) { return error ? error->message.c_str() : ""; }
const char* reprise_error_place(const reprise_error* error) { return error ? error->place.c_str() : ""; }
void reprise_error_free(reprise_error* error) { delete error; }

uint32_t reprise_abi(void) { return REPRISE_ABI; }
const char* reprise_version(void) { return REPRISE_VERSION; }

const void* reprise_blob_data(const reprise_blob* blob) { return blob ? blob->bytes.c_str() : nullptr; }
size_t reprise_blob_size(const reprise_blob* blob) { return blob ? blob->bytes.size() : 0; }
void reprise_blob_free(reprise_blob* blob) { delete blob; }

reprise_settings* reprise_settings_new(void) { return new (std::nothrow) reprise_settings; }
void reprise_settings_free(reprise_settings* settings) { delete settings; }

reprise_code reprise_settings_set(reprise_settings* settings, const char* name, const char* value,
                                  reprise_error** error) {
  return guarded(nullptr, error, [&]() -> Failure {
    if (!settings) return missing("settings");
    if (!name) return missing("name");
    if (!value) return missing("value");
    std::string key = settings::key_of(name);
    if (Status wrong = check_value(key, value); !wrong.is_ok()) return {std::move(wrong), std::move(key)};
    settings->values.emplace_back(std::move(key), value);
    return {};
  });
}

reprise_code reprise_settings_json(reprise_settings* settings, reprise_text json, reprise_error** error) {
  return guarded(nullptr, error, [&]() -> Failure {
    if (!settings) return missing("settings");
    std::string text;
    RETURN_IF_FAILURE(take_text(text, json, "json"));
    auto given = settings::values_of_json(text);
    if (!given) return {given.status(), "json"};
    Values checked = settings->values;
    for (auto& [name, value] : *given) {
      std::string key = settings::key_of(name);
      if (Status wrong = check_value(key, value); !wrong.is_ok()) return {std::move(wrong), std::move(key)};
      checked.emplace_back(std::move(key), std::move(value));
    }
    settings->values = std::move(checked);
    return {};
  });
}

reprise_text reprise_settings_table(void) {
  try {
    static const std::string text = settings_table().dump();
    return {text.data(), text.size()};
  } catch (...) {
    return {nullptr, 0};  // no memory
  }
}

reprise_code reprise_open(const reprise_settings* settings, const reprise_hooks* hooks, reprise_engine** engine,
                          reprise_error** error) {
  if (engine) *engine = nullptr;
  std::unique_ptr<reprise_engine> made(new (std::nothrow) reprise_engine);
  if (!made) return REPRISE_OUT_OF_MEMORY;
  return guarded(&made->hooks, error, [&]() -> Failure {
    if (!engine) return missing("engine");
    if (!settings) return missing("settings");
    reprise_hooks given{};
    if (hooks) RETURN_IF_FAILURE(take(given, hooks, "hooks"));
    set_hooks(made->hooks, given);
    EventFunction on_event;
    if (given.event)
      on_event = [event = given.event, context = given.context](std::unique_ptr<EventBox> box) {
        event(context, &box->sealed());
      };
    auto opened = Engine::open(settings->values, made->hooks, std::move(on_event));
    if (!opened) return opened.status();
    made->engine = std::move(*opened);
    *engine = made.release();
    return {};
  });
}

void reprise_close(reprise_engine* engine) {
  if (!engine) return;
  const HookScope scope(&engine->hooks);
  engine->engine.reset();
  delete engine;
}

reprise_code reprise_describe(reprise_engine* engine, const char* what, reprise_blob** out, reprise_error** error) {
  if (out) *out = nullptr;
  return with(engine, error, [&](Engine& e) -> Failure {
    if (!what) return missing("what");
    std::string text;
    RETURN_IF_FAILURE(e.describe(what, text));
    return give(out, std::move(text));
  });
}

reprise_code reprise_encode(reprise_engine* engine, reprise_text text, uint32_t flags, reprise_blob** ids,
                            reprise_error** error) {
  if (ids) *ids = nullptr;
  return with(engine, error, [&](Engine& e) -> Failure {
    std::string bytes;
    RETURN_IF_FAILURE(take_text(bytes, text, "text"));
    RETURN_IF_FAILURE(need_tokenizer(e.model()));
    auto made = e.model().tokenizer->encode(bytes, {.add_special_tokens = (flags & REPRISE_SPECIAL) != 0});
    return made ? give(ids, bytes_of(*made)) : Failure(made.status(), "text");
  });
}

reprise_code reprise_encode_chat(reprise_engine* engine, reprise_text messages, reprise_text options,
                                 reprise_blob** ids, reprise_error** error) {
  if (ids) *ids = nullptr;
  return with(engine, error, [&](Engine& e) -> Failure {
    std::vector<int32_t> made;
    RETURN_IF_FAILURE(encode_chat(made, messages, options, e.model()));
    return give(ids, bytes_of(made));
  });
}

reprise_code reprise_decode(reprise_engine* engine, const int32_t* ids, size_t count, uint32_t flags,
                            reprise_blob** text, reprise_error** error) {
  if (text) *text = nullptr;
  return with(engine, error, [&](Engine& e) -> Failure {
    if (!ids && count) return missing("ids");
    RETURN_IF_FAILURE(need_tokenizer(e.model()));
    auto made = e.model().tokenizer->decode({ids, count}, (flags & REPRISE_SPECIAL) == 0);
    return made ? give(text, std::move(*made)) : Failure(made.status(), "ids");
  });
}

void reprise_sampling_init(reprise_sampling* sampling, size_t size) {
  if (!sampling || size < sizeof(size_t)) return;
  reprise_sampling whole = default_sampling();
  whole.size = size;
  std::memset(static_cast<void*>(sampling), 0, size);
  std::memcpy(static_cast<void*>(sampling), &whole, std::min(size, sizeof whole));
}

reprise_code reprise_submit(reprise_engine* engine, const reprise_request* request, uint64_t* id,
                            reprise_error** error) {
  return with(engine, error, [&](Engine& e) { return e.submit(request, id); });
}

void reprise_cancel(reprise_engine* engine, uint64_t id) {
  (void)with(engine, nullptr, [&](Engine& e) -> Failure {
    e.cancel(id);
    return {};
  });
}

reprise_code reprise_poll(reprise_engine* engine, int32_t timeout_ms, const reprise_event* const** events,
                          size_t* count, reprise_error** error) {
  if (count) *count = 0;
  return with(engine, error, [&](Engine& e) -> Failure {
    if (!events) return missing("events");
    if (!count) return missing("count");
    if (!e.queue()) return {invalid("events go to the event hook of this engine; there is nothing to poll"), "hooks"};
    std::optional<std::chrono::milliseconds> most;
    if (timeout_ms >= 0 || !e.own_thread()) most.emplace(e.own_thread() ? timeout_ms : 0);
    auto taken = e.queue()->take(most);
    if (!taken) return taken.status();
    *events = (*taken)->data();
    *count = (*taken)->size();
    return {};
  });
}

int reprise_event_fd(reprise_engine* engine) {
  return engine && engine->engine->queue() ? engine->engine->queue()->descriptor() : -1;
}

reprise_code reprise_step(reprise_engine* engine, int32_t* worked, reprise_error** error) {
  if (worked) *worked = 0;
  return with(engine, error, [&](Engine& e) {
    bool did = false;
    Failure f = e.step(did);
    if (worked) *worked = did;
    return f;
  });
}

reprise_code reprise_generate(reprise_engine* engine, const reprise_request* request, reprise_blob** text,
                              reprise_error** error) {
  if (text) *text = nullptr;
  return with(engine, error, [&](Engine& e) -> Failure {
    if (!text) return missing("text");
    std::string answer;
    RETURN_IF_FAILURE(e.generate(request, answer));
    return give(text, std::move(answer));
  });
}

reprise_code reprise_load_adapter(reprise_engine* engine, reprise_text name, reprise_text path, reprise_error** error) {
  return with(engine, error, [&](Engine& e) -> Failure {
    std::string called, folder;
    RETURN_IF_FAILURE(take_text(called, name, "name"));
    RETURN_IF_FAILURE(take_text(folder, path, "path"));
    return e.load_adapter(called, folder);
  });
}

reprise_code reprise_unload_adapter(reprise_engine* engine, reprise_text name, reprise_error** error) {
  return with(engine, error, [&](Engine& e) -> Failure {
    std::string called;
    RETURN_IF_FAILURE(take_text(called, name, "name"));
    return e.unload_adapter(called);
  });
}

reprise_code reprise_embed(reprise_engine* engine, const reprise_text* inputs, size_t count, const char* pooling,
                           size_t* dimension, reprise_blob** floats, reprise_error** error) {
  if (dimension) *dimension = 0;
  if (floats) *floats = nullptr;
  return with(engine, error, [&](Engine& e) -> Failure {
    if (!dimension) return missing("dimension");
    if (!floats) return missing("floats");
    std::vector<std::string> texts;
    RETURN_IF_FAILURE(take_texts(texts, inputs, count, "inputs"));
    std::vector<std::vector<float>> rows;
    RETURN_IF_FAILURE(e.embed(texts, pooling ? pooling : "", rows));
    std::string bytes;
    for (const std::vector<float>& row : rows) bytes += bytes_of(row);
    *dimension = rows.front().size();
    return give(floats, std::move(bytes));
  });
}

reprise_code reprise_score(reprise_engine* engine, reprise_text query, const reprise_text* documents, size_t count,
                           const char* instruction, reprise_blob** floats, reprise_error** error) {
  if (floats) *floats = nullptr;
  return with(engine, error, [&](Engine& e) -> Failure {
    if (!floats) return missing("floats");
    std::string asked;
    RETURN_IF_FAILURE(take_text(asked, query, "query"));
    std::vector<std::string> texts;
    RETURN_IF_FAILURE(take_texts(texts, documents, count, "documents"));
    std::vector<float> scores;
    RETURN_IF_FAILURE(e.score(asked, texts, instruction ? instruction : "", scores));
    return give(floats, bytes_of(scores));
  });
}
