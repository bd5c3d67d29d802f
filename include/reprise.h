// Reprise in the process of another program: open a model, generate, stream, cancel, see what was compiled.
//
// C99 and later, and C++. docs/library.md starts from a task; include/reprise.hpp is the same for C++17.
//
// Threads: a reprise_settings is used by one thread at a time. An engine is used by any thread, but for reprise_poll
// and reprise_step (one caller at a time) and reprise_close (the last call). Hooks are called on the threads that their
// lines name; an `event` hook may submit and cancel, and must not block, wait or close. A process that has opened an
// engine does not go on after fork().
//
// The library writes nothing to standard output and standard error, never ends the process, and lets no exception out.
// One case is left: a broken invariant of its own (a bug) goes to the log hook, and then abort() is called.
//
// Growth: a structure that the caller fills begins with its size. The library reads what it knows, takes what is
// missing for zero, and refuses what it does not know and is not zero.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REPRISE_ABI 3u /* one more with every addition; a break changes the SONAME */
#if defined(__GNUC__)
#define REPRISE_API __attribute__((visibility("default")))
#else
#define REPRISE_API
#endif

typedef struct reprise_error reprise_error;       /* why a call failed; NULL: it did not */
typedef struct reprise_settings reprise_settings; /* names and values, checked as they are set */
typedef struct reprise_engine reprise_engine;     /* a loaded model, its scheduler and its thread */
typedef struct reprise_blob reprise_blob;         /* bytes that the library owns until they are freed */
typedef struct reprise_text {
  const char* data;
  size_t size;
} reprise_text; /* UTF-8; needs no final zero */

/* --- Errors. The last argument of a call that can fail may be NULL; else it is set to NULL or to an error, which the
 * caller frees. Every _free takes NULL. */
enum {
  REPRISE_OK,
  REPRISE_INVALID,     /* what was given is wrong; the message names what is allowed */
  REPRISE_NOT_FOUND,   /* a file, a name */
  REPRISE_UNSUPPORTED, /* well formed, but this build, model or device cannot do it */
  REPRISE_OUT_OF_MEMORY,
  REPRISE_BUSY, /* try again later */
  REPRISE_CANCELLED,
  REPRISE_DEVICE,
  REPRISE_DEVICE_LOST, /* nothing more can be computed with this engine */
  REPRISE_INTERNAL     /* a bug of the library */
};
typedef int32_t reprise_code;
REPRISE_API reprise_code reprise_error_code(const reprise_error* error);   /* of NULL: REPRISE_OK */
REPRISE_API const char* reprise_error_message(const reprise_error* error); /* one sentence; of NULL: "" */
REPRISE_API const char* reprise_error_place(const reprise_error* error);   /* the setting or field at fault; "": none */
REPRISE_API void reprise_error_free(reprise_error* error);

REPRISE_API uint32_t reprise_abi(void);        /* of the library that was loaded */
REPRISE_API const char* reprise_version(void); /* "0.1.0" */

REPRISE_API const void* reprise_blob_data(const reprise_blob* blob); /* behind the bytes stands a zero */
REPRISE_API size_t reprise_blob_size(const reprise_blob* blob);
REPRISE_API void reprise_blob_free(reprise_blob* blob);

/* --- Settings: the rows of docs/configuration.md by name, "max-running-requests" or "max_running_requests", with
 * values as text. Of a name that takes several values each call adds one; else the last call counts. */
REPRISE_API reprise_settings* reprise_settings_new(void); /* NULL: no memory */
REPRISE_API void reprise_settings_free(reprise_settings* settings);
REPRISE_API reprise_code reprise_settings_set(reprise_settings* settings, const char* name, const char* value,
                                              reprise_error** error);
/* An object of names and values: numbers, texts, true and false; a list is its values one after the other. Nothing is
 * set when a part of it is wrong. */
REPRISE_API reprise_code reprise_settings_json(reprise_settings* settings, reprise_text json, reprise_error** error);
/* All that can be set, as JSON: [{"name", "aliases", "group", "type", "default", "allowed", "help"}]. Stays. */
REPRISE_API reprise_text reprise_settings_table(void);

/* --- Opening. */
typedef struct reprise_event reprise_event;
typedef struct reprise_hooks {
  size_t size;
  void* context; /* the first argument of all hooks, each of which may be NULL */
  /* 0 debug, 1 info, 2 notice, 3 warning, 4 error, from the setting log-level (warning) on. Any thread. */
  void (*log)(void* context, int32_t level, reprise_text message);
  /* How far opening is; not 0 gives it up. Any thread, one at a time. */
  int32_t (*progress)(void* context, const char* stage, uint64_t done, uint64_t total);
  /* The first on each new thread of the library: pin, name or register it. */
  void (*thread)(void* context, const char* name);
  /* Every event of every request, on the engine's thread. NULL: events wait for reprise_poll. */
  void (*event)(void* context, const reprise_event* event);
} reprise_hooks;
/* Loads the model of "model-path". `hooks` is copied and may be NULL. With engine-thread=off the engine has no thread:
 * reprise_step computes. */
REPRISE_API reprise_code reprise_open(const reprise_settings* settings, const reprise_hooks* hooks,
                                      reprise_engine** engine, reprise_error** error);
/* What still runs ends with REPRISE_CANCELLED. Takes NULL. The last call, and not from a hook. */
REPRISE_API void reprise_close(reprise_engine* engine);
/* JSON of "model", "settings" (with their origin), "graph" (as `reprise graph explain --json`, by phase), "memory" or
 * "counters"; "metrics": Prometheus' text form. */
REPRISE_API reprise_code reprise_describe(reprise_engine* engine, const char* what, reprise_blob** out,
                                          reprise_error** error);

/* --- Text and tokens. Blobs of tokens are int32_t. */
enum { REPRISE_SPECIAL = 1 }; /* encode: add the special tokens of a text; decode: keep those that there are */
REPRISE_API reprise_code reprise_encode(reprise_engine* engine, reprise_text text, uint32_t flags, reprise_blob** ids,
                                        reprise_error** error);
/* A conversation through the model's chat template; `messages` (without images) and `options` as in reprise_request. */
REPRISE_API reprise_code reprise_encode_chat(reprise_engine* engine, reprise_text messages, reprise_text options,
                                             reprise_blob** ids, reprise_error** error);
REPRISE_API reprise_code reprise_decode(reprise_engine* engine, const int32_t* ids, size_t count, uint32_t flags,
                                        reprise_blob** text, reprise_error** error);

/* --- Sampling. reprise_sampling_init sets every field to "as the model's publisher says". */
enum {
  REPRISE_SEEDED = 1, /* `seed` counts; else the setting random-seed does */
  REPRISE_IGNORE_EOS = 2,
  REPRISE_KEEP_SPECIAL = 4, /* special tokens have text */
  REPRISE_KEEP_STOP = 8     /* the text ends with the stop string that was found */
};
enum {
  REPRISE_ANY_FORM,
  REPRISE_JSON,        /* an object */
  REPRISE_JSON_SCHEMA, /* form_text is the schema */
  REPRISE_REGEX,       /* form_text is the pattern */
  REPRISE_CHOICE,      /* form_text is a JSON list of texts */
  REPRISE_EBNF         /* REPRISE_UNSUPPORTED yet */
};
typedef struct reprise_scored {
  int32_t id;
  float value;
} reprise_scored;
typedef struct reprise_sampling {
  size_t size;
  double temperature, top_p, min_p, repetition_penalty; /* NaN: the model's own */
  double presence_penalty, frequency_penalty;           /* NaN: 0 */
  int64_t top_k;                                        /* INT64_MIN: the model's own */
  int64_t max_tokens, min_tokens;                       /* INT64_MIN: 128 and 0 */
  uint64_t seed;
  uint32_t flags;
  int32_t logprobs, prompt_logprobs; /* -1: none; n: of each token, and of the n likeliest at its place */
  const reprise_text* stop;
  const int32_t* stop_ids;
  const reprise_scored* bias; /* added to the logits of these ids; -100 to 100 */
  size_t stop_count, stop_id_count, bias_count;
  int32_t form; /* REPRISE_JSON_SCHEMA, ...: the answer is held to it */
  reprise_text form_text;
} reprise_sampling;
/* `size` is sizeof(reprise_sampling). */
REPRISE_API void reprise_sampling_init(reprise_sampling* sampling, size_t size);

/* --- Requests. What is pointed to is copied before reprise_submit returns. */
typedef struct reprise_request {
  size_t size;
  /* The prompt is one of these three: */
  const int32_t* ids;
  size_t id_count;
  reprise_text prompt;   /* text as it stands */
  reprise_text messages; /* a chat, through the model's template: [{"role": "user", "content": "..."}, ...] */
  /* Options of a chat, a JSON object: tools, tool_choice, parallel_tool_calls, template_kwargs, add_generation_prompt,
   * reasoning_effort, separate_reasoning. */
  reprise_text chat;
  const reprise_sampling* sampling; /* NULL: the model's own */
  int32_t answers;                  /* 0: one; each has a seed of its own */
  int32_t priority;                 /* larger goes first */
  double deadline_s;                /* from now on; 0: none */
  reprise_text name;                /* for traces */
  reprise_text cache_salt;          /* prefixes are shared within one salt alone */
  reprise_text adapter;             /* name of a loaded LoRA adapter; empty: the model alone */
  void* context;                    /* comes back with every event */
} reprise_request;
enum { REPRISE_STARTED, REPRISE_TOKENS, REPRISE_PROMPT_LOGPROBS, REPRISE_FINISHED };
enum {
  REPRISE_RUNNING,
  REPRISE_STOP,       /* an end token or a stop string */
  REPRISE_LENGTH,     /* max_tokens, or the end of the context */
  REPRISE_TOOL_CALLS, /* as REPRISE_STOP, with calls */
  REPRISE_ENDED,      /* cancelled, or its deadline has passed */
  REPRISE_FAILED      /* `error` says why */
};
struct reprise_event { /* the library's; good until the hook returns, or the next reprise_poll */
  size_t size;
  uint64_t request;
  void* context;
  int32_t kind;   /* REPRISE_TOKENS, ... */
  int32_t answer; /* 0 to answers - 1 */
  int32_t finish; /* REPRISE_RUNNING but for REPRISE_FINISHED */
  /* New since the last event. `calls` is a JSON list of whole calls {"id", "name", "arguments"}; `stop` is the stop
   * string that ended the answer. */
  reprise_text text, reasoning, calls, stop;
  const int32_t* ids;
  const float* logprobs;     /* one for each id; NULL: not asked for */
  const reprise_scored* top; /* top_count for each id, best first; where there are fewer, id -1 */
  size_t id_count, top_count;
  const reprise_error* error;                                                /* of REPRISE_FINISHED; NULL: none */
  int64_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens; /* so far */
  double queued_s, first_token_s, total_s; /* of REPRISE_FINISHED, since the submission; 0 where it did not get there */
};
/* An answer has REPRISE_STARTED once it is admitted, then its tokens, and REPRISE_FINISHED in any case and last. */
REPRISE_API reprise_code reprise_submit(reprise_engine* engine, const reprise_request* request, uint64_t* id,
                                        reprise_error** error);
REPRISE_API void reprise_cancel(reprise_engine* engine, uint64_t id); /* any thread; unknown ids are ignored */
/* The events since the last call; waits for the first, at most so long (-1: without a bound; 0: not at all). With
 * engine-thread=off it does not wait. */
REPRISE_API reprise_code reprise_poll(reprise_engine* engine, int32_t timeout_ms, const reprise_event* const** events,
                                      size_t* count, reprise_error** error);
/* A descriptor that is readable while events wait, for poll, epoll and event loops; the library's. -1: there is an
 * event hook. */
REPRISE_API int reprise_event_fd(reprise_engine* engine);
/* With engine-thread=off: takes one step of what was submitted. `worked` (may be NULL): there was something to do. */
REPRISE_API reprise_code reprise_step(reprise_engine* engine, int32_t* worked, reprise_error** error);
/* One answer, waited for; its text. It has no events. Not from a hook. */
REPRISE_API reprise_code reprise_generate(reprise_engine* engine, const reprise_request* request, reprise_blob** text,
                                          reprise_error** error);
/* --- LoRA adapters, with the settings "enable-lora", "max-loras", "lora-modules". Since ABI 2. `path` is a folder that
 * PEFT saved. Loading reads it and waits for the step that runs, so not from a hook; REPRISE_BUSY: no slot is free. */
REPRISE_API reprise_code reprise_load_adapter(reprise_engine* engine, reprise_text name, reprise_text path,
                                              reprise_error** error);
/* New requests do not find it; those that have it go on, and its slot is free after the last of them. */
REPRISE_API reprise_code reprise_unload_adapter(reprise_engine* engine, reprise_text name, reprise_error** error);

/* --- Vectors and scores, of models that write no text; REPRISE_UNSUPPORTED for those that do. Both wait, so not from a
 * hook, and have no events. */
/* Rows of `dimension` float, one for each text. `pooling`: "last", "mean", "cls", or "" for the model's own; another
 * than the engine was opened with (the setting "pooling") is REPRISE_UNSUPPORTED. */
REPRISE_API reprise_code reprise_embed(reprise_engine* engine, const reprise_text* inputs, size_t count,
                                       const char* pooling, size_t* dimension, reprise_blob** floats,
                                       reprise_error** error);
/* One float for each document: how well it answers `query`. A reranker is told `instruction` where its kind has one
 * (NULL or "": the usual one); a model that gives vectors compares them by their cosine. Since ABI 3. */
REPRISE_API reprise_code reprise_score(reprise_engine* engine, reprise_text query, const reprise_text* documents,
                                       size_t count, const char* instruction, reprise_blob** floats,
                                       reprise_error** error);

#ifdef __cplusplus
}
#endif
