/* One answer through every way there is: waited for, by events, on the caller's thread, by an event hook; and what is
 * told of it. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <poll.h>

#include "test.h"

enum { TOKENS = 24 };

/* What the events of one answer said. */
struct seen {
  char text[4096];
  size_t size;
  int started, finished, finish, tokens, with_logprobs, prompt_ids;
  int64_t prompt_tokens, completion_tokens;
  reprise_code error;
};

static void see(struct seen* s, const reprise_event* e) {
  size_t i;
  EXPECT(!s->finished && e->size >= sizeof(reprise_event));
  if (e->text.size && s->size + e->text.size < sizeof s->text) {
    memcpy(s->text + s->size, e->text.data, e->text.size);
    s->size += e->text.size;
    s->text[s->size] = 0;
  }
  s->started += e->kind == REPRISE_STARTED;
  if (e->kind == REPRISE_TOKENS) s->tokens += (int)e->id_count;
  if (e->kind == REPRISE_PROMPT_LOGPROBS) s->prompt_ids += (int)e->id_count;
  for (i = 0; e->logprobs && i < e->id_count; ++i) {
    if (e->kind == REPRISE_PROMPT_LOGPROBS && i == 0) continue;
    EXPECT(e->logprobs[i] <= 0 && e->top && e->top_count == 2 && e->top[2 * i].value >= e->top[2 * i + 1].value);
    ++s->with_logprobs;
  }
  EXPECT((e->kind == REPRISE_FINISHED) == (e->finish != REPRISE_RUNNING));
  if (e->kind != REPRISE_FINISHED) return;
  ++s->finished;
  s->finish = e->finish;
  s->error = reprise_error_code(e->error);
  s->prompt_tokens = e->prompt_tokens;
  s->completion_tokens = e->completion_tokens;
  EXPECT(e->total_s >= e->first_token_s && e->first_token_s >= e->queued_s && e->queued_s >= 0);
}

static void by_events(reprise_engine* engine, const char* expected) {
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, TOKENS);
  struct seen seen[2];
  uint64_t id = 0;
  size_t count = 1;
  const reprise_event* const* events = NULL;
  memset(seen, 0, sizeof seen);
  sampling.logprobs = sampling.prompt_logprobs = 2;
  r.answers = 2;
  r.context = seen;
  EXPECT_OK(reprise_poll(engine, 0, &events, &count, error));
  EXPECT(count == 0 && reprise_event_fd(engine) >= 0);
  EXPECT_OK(reprise_submit(engine, &r, &id, error));
  while (seen[0].finished + seen[1].finished < 2) {
    struct pollfd fd;
    size_t i;
    fd.fd = reprise_event_fd(engine);
    fd.events = POLLIN;
    if (poll(&fd, 1, 20000) != 1) {
      test_fail(__FILE__, __LINE__, "an event in 20 s", "");
      return;
    }
    EXPECT_OK(reprise_poll(engine, 0, &events, &count, error));
    EXPECT(count > 0);
    for (i = 0; i < count; ++i) {
      EXPECT(events[i]->request == id && events[i]->answer >= 0 && events[i]->answer < 2);
      see((struct seen*)events[i]->context + events[i]->answer, events[i]);
    }
  }
  /* Greedy answers are the same ones. */
  for (count = 0; count < 2; ++count) {
    const struct seen* s = &seen[count];
    EXPECT(s->started == 1 && s->tokens == TOKENS && s->finish == REPRISE_LENGTH && s->error == REPRISE_OK);
    EXPECT(s->prompt_tokens == 5 && s->prompt_ids == 5 && s->completion_tokens == TOKENS);
    EXPECT(s->with_logprobs == TOKENS + 4);
    EXPECT(strcmp(s->text, expected) == 0);
  }
}

static void text_and_tokens(reprise_engine* engine) {
  reprise_blob *ids = NULL, *text = NULL, *chat = NULL, *rendered = NULL, *described = NULL;
  const int32_t* list;
  const char* const kinds[] = {"model", "settings", "graph", "memory", "counters", "metrics"};
  size_t i;
  EXPECT_OK(reprise_encode(engine, text_of("Hi \xc3\xa4!"), REPRISE_SPECIAL, &ids, error));
  list = reprise_blob_data(ids);
  EXPECT(reprise_blob_size(ids) == 6 * sizeof(int32_t) && list[0] == 'H' && list[3] == 0xc3);
  EXPECT_OK(reprise_decode(engine, list, 6, 0, &text, error));
  EXPECT(blob_is(text, "Hi \xc3\xa4!"));
  EXPECT_OK(
      reprise_encode_chat(engine, text_of("[{\"role\": \"user\", \"content\": \"hi\"}]"), text_of(""), &chat, error));
  EXPECT_OK(
      reprise_decode(engine, reprise_blob_data(chat), reprise_blob_size(chat) / sizeof(int32_t), 0, &rendered, error));
  EXPECT(blob_is(rendered, "<user>hi<assistant>"));
  for (i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    EXPECT_OK(reprise_describe(engine, kinds[i], &described, error));
    EXPECT(reprise_blob_size(described) > 50);
    if (i == 1)
      EXPECT(strstr(reprise_blob_data(described), "\"threads\":{\"value\":\"1\",\"origin\":\"api\"") != NULL);
    if (i == 2) EXPECT(strstr(reprise_blob_data(described), "\"passes\"") != NULL);
    if (i == 5) EXPECT(strstr(reprise_blob_data(described), "vllm:generation_tokens_total") != NULL);
    reprise_blob_free(described);
  }
  reprise_blob_free(ids);
  reprise_blob_free(text);
  reprise_blob_free(chat);
  reprise_blob_free(rendered);
}

/* A stop string, a form, a seed. */
static void sampled(reprise_engine* engine, const char* expected) {
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, TOKENS);
  reprise_blob *first = NULL, *second = NULL, *other = NULL;
  char word[2];
  reprise_text stop;
  size_t end = 0;
  word[0] = expected[0];
  word[1] = 0;
  stop = text_of(word);
  sampling.stop = &stop;
  sampling.stop_count = 1;
  if ((unsigned char)word[0] < 128) {
    EXPECT_OK(reprise_generate(engine, &r, &first, error));
    EXPECT(reprise_blob_size(first) == 0);
    reprise_blob_free(first);
    sampling.flags |= REPRISE_KEEP_STOP;
    EXPECT_OK(reprise_generate(engine, &r, &first, error));
    EXPECT(blob_is(first, word));
    reprise_blob_free(first);
  }
  r = hello(&sampling, TOKENS);
  sampling.form = REPRISE_CHOICE;
  sampling.form_text = text_of("[\"north\", \"south\"]");
  sampling.flags = 0;
  EXPECT_OK(reprise_generate(engine, &r, &first, error));
  EXPECT(blob_is(first, "north") || blob_is(first, "south"));
  reprise_blob_free(first);
  r = hello(&sampling, TOKENS);
  sampling.temperature = 1;
  sampling.flags |= REPRISE_SEEDED;
  sampling.seed = 5;
  EXPECT_OK(reprise_generate(engine, &r, &first, error));
  EXPECT_OK(reprise_generate(engine, &r, &second, error));
  sampling.seed = 6;
  EXPECT_OK(reprise_generate(engine, &r, &other, error));
  EXPECT(blob_is(first, reprise_blob_data(second)) && !blob_is(first, reprise_blob_data(other)));
  end = reprise_blob_size(first);
  EXPECT(end > 0);
  reprise_blob_free(first);
  reprise_blob_free(second);
  reprise_blob_free(other);
}

/* On the caller's thread, with all hooks. */
struct hooked {
  struct seen seen;
  reprise_engine* engine;
  int lines, stages, threads, submitted;
  reprise_code from_hook;
};

static void on_log(void* context, int32_t level, reprise_text message) {
  EXPECT(level >= 0 && level <= 4 && message.size > 0);
  ++((struct hooked*)context)->lines;
}
static int32_t on_progress(void* context, const char* stage, uint64_t done, uint64_t total) {
  EXPECT(*stage && total > 0 && done > 0);
  ++((struct hooked*)context)->stages;
  return 0;
}
static void on_thread(void* context, const char* name) {
  EXPECT(*name);
  ++((struct hooked*)context)->threads;
}
static void on_event(void* context, const reprise_event* event) {
  struct hooked* h = context;
  reprise_blob* blob = NULL;
  see(&h->seen, event);
  /* Neither of these may be called from here, and both say so. */
  if (event->kind == REPRISE_STARTED) {
    reprise_sampling sampling;
    reprise_request r = hello(&sampling, 1);
    h->from_hook = reprise_generate(h->engine, &r, &blob, NULL);
    EXPECT_OK(reprise_describe(h->engine, "counters", &blob, error));
    reprise_blob_free(blob);
  }
}

static void on_own_thread(const char* folder, const char* threads, const char* expected) {
  struct hooked h;
  reprise_hooks hooks;
  reprise_settings* s = small_model(folder);
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, TOKENS);
  reprise_blob* text = NULL;
  int32_t worked = 1;
  int steps = 0;
  size_t count = 0;
  const reprise_event* const* events = NULL;
  memset(&h, 0, sizeof h);
  memset(&hooks, 0, sizeof hooks);
  hooks.size = sizeof hooks;
  hooks.context = &h;
  hooks.log = on_log;
  hooks.progress = on_progress;
  hooks.thread = on_thread;
  hooks.event = on_event;
  EXPECT_OK(reprise_settings_set(s, "engine-thread", "off", error));
  EXPECT_OK(reprise_settings_set(s, "log-level", "debug", error));
  EXPECT_OK(reprise_settings_set(s, "threads", threads, error));
  EXPECT_OK(reprise_open(s, &hooks, &h.engine, error));
  EXPECT(h.lines > 0 && h.stages > 0 && h.threads > 0);
  EXPECT(reprise_event_fd(h.engine) == -1);
  EXPECT_FAILS(REPRISE_INVALID, "hooks", reprise_poll(h.engine, 0, &events, &count, error));
  EXPECT_OK(reprise_submit(h.engine, &r, NULL, error));
  EXPECT(!h.seen.started);
  while (!h.seen.finished && steps < 1000) {
    EXPECT_OK(reprise_step(h.engine, &worked, error));
    ++steps;
  }
  EXPECT(steps >= TOKENS && h.seen.tokens == TOKENS && strcmp(h.seen.text, expected) == 0);
  EXPECT(h.from_hook == REPRISE_INVALID);
  while (worked) EXPECT_OK(reprise_step(h.engine, &worked, error));
  EXPECT_OK(reprise_generate(h.engine, &r, &text, error));
  EXPECT(blob_is(text, expected));
  reprise_blob_free(text);
  reprise_close(h.engine);
  reprise_settings_free(s);
}

int main(int argc, char** argv) {
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, TOKENS);
  reprise_blob* text = NULL;
  reprise_engine* engine;
  if (argc != 2) return 2;
  test_begin();
  engine = open_small(argv[1], NULL);
  EXPECT_OK(reprise_generate(engine, &r, &text, error));
  EXPECT(reprise_blob_size(text) > 0);
  by_events(engine, reprise_blob_data(text));
  text_and_tokens(engine);
  sampled(engine, reprise_blob_data(text));
  reprise_close(engine);
  on_own_thread(argv[1], "2", reprise_blob_data(text));
  reprise_blob_free(text);
  return test_end();
}
