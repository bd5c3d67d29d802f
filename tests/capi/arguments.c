/* Every function with NULL, structures that are shorter and longer than the library's, and values out of range. */
#include "test.h"

static void no_engine(void) {
  size_t n = 7;
  uint64_t id = 7;
  int32_t worked = 7;
  const reprise_event* const* events = NULL;
  reprise_blob* blob = NULL;
  reprise_text none = {NULL, 0};
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_describe(NULL, "model", &blob, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_encode(NULL, none, 0, &blob, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_encode_chat(NULL, none, none, &blob, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_decode(NULL, NULL, 0, 0, &blob, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_submit(NULL, NULL, &id, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_poll(NULL, 0, &events, &n, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_step(NULL, &worked, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_generate(NULL, NULL, &blob, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_embed(NULL, NULL, 0, NULL, &n, &blob, error));
  EXPECT(reprise_event_fd(NULL) == -1 && worked == 0 && n == 0 && blob == NULL);
  EXPECT(reprise_submit(NULL, NULL, NULL, NULL) == REPRISE_INVALID);
  reprise_cancel(NULL, 1);
  reprise_close(NULL);
  reprise_blob_free(NULL);
  reprise_error_free(NULL);
  reprise_settings_free(NULL);
  reprise_sampling_init(NULL, 100);
  EXPECT(reprise_error_code(NULL) == REPRISE_OK && !*reprise_error_message(NULL) && !*reprise_error_place(NULL));
  EXPECT(reprise_blob_size(NULL) == 0 && reprise_blob_data(NULL) == NULL);
  EXPECT(reprise_abi() == REPRISE_ABI && strchr(reprise_version(), '.') != NULL);
}

static void settings(const char* folder) {
  reprise_engine* engine = NULL;
  reprise_settings* s = reprise_settings_new();
  const reprise_text table = reprise_settings_table();
  EXPECT(table.size > 1000 && strstr(table.data, "\"max-running-requests\"") &&
         strstr(table.data, "\"engine-thread\""));
  EXPECT(reprise_settings_table().data == table.data);
  EXPECT_FAILS(REPRISE_INVALID, "settings", reprise_settings_set(NULL, "threads", "1", error));
  EXPECT_FAILS(REPRISE_INVALID, "name", reprise_settings_set(s, NULL, "1", error));
  EXPECT_FAILS(REPRISE_INVALID, "value", reprise_settings_set(s, "threads", NULL, error));
  EXPECT_FAILS(REPRISE_INVALID, "max_running_requests", reprise_settings_set(s, "max-running-requests", "0", error));
  EXPECT_FAILS(REPRISE_INVALID, "max_running", reprise_settings_set(s, "max-running", "1", error));
  EXPECT_FAILS(REPRISE_INVALID, "port", reprise_settings_set(s, "port", "1", error));
  EXPECT_FAILS(REPRISE_INVALID, "settings", reprise_settings_json(NULL, text_of("{}"), error));
  EXPECT_FAILS(REPRISE_INVALID, "json", reprise_settings_json(s, text_of("[1"), error));
  EXPECT_FAILS(REPRISE_INVALID, "threads", reprise_settings_json(s, text_of("{\"threads\": -1}"), error));
  EXPECT_FAILS(REPRISE_INVALID, "model_path", reprise_open(s, NULL, &engine, error));
  EXPECT_FAILS(REPRISE_INVALID, "settings", reprise_open(NULL, NULL, &engine, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_open(s, NULL, NULL, error));
  EXPECT_OK(reprise_settings_set(s, "model-path", "/no/such/model", error));
  EXPECT_FAILS(REPRISE_NOT_FOUND, "", reprise_open(s, NULL, &engine, error));
  EXPECT(engine == NULL && reprise_open(s, NULL, &engine, NULL) == REPRISE_NOT_FOUND);
  EXPECT_OK(reprise_settings_set(s, "tp-size", "2", error));
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "tp_size", reprise_open(s, NULL, &engine, error));
  reprise_settings_free(s);
  /* Two settings that contradict one another. */
  s = small_model(folder);
  EXPECT_OK(reprise_settings_json(s, text_of("{\"graph\": \"off\", \"graph-decode\": \"whole\"}"), error));
  EXPECT_FAILS(REPRISE_INVALID, "graph", reprise_open(s, NULL, &engine, error));
  reprise_settings_free(s);
}

/* The library reads what it knows of a structure. */
static void sizes(const char* folder, reprise_engine* engine) {
  struct {
    reprise_request request;
    char newer[32];
  } longer;
  struct {
    reprise_sampling sampling;
    double newer[3];
  } sampling;
  reprise_blob *whole = NULL, *same = NULL;
  reprise_hooks hooks;
  reprise_settings* s = small_model(folder);
  reprise_engine* other = NULL;
  memset(&longer, 0, sizeof longer);
  memset(&sampling, 0, sizeof sampling);
  longer.request = hello(&sampling.sampling, 6);
  EXPECT_OK(reprise_generate(engine, &longer.request, &whole, error));
  longer.request.size = sizeof longer;
  EXPECT_OK(reprise_generate(engine, &longer.request, &same, error));
  EXPECT(whole && blob_is(same, reprise_blob_data(whole)));
  reprise_blob_free(same);
  longer.newer[31] = 1;
  EXPECT_FAILS(REPRISE_INVALID, "request.size", reprise_generate(engine, &longer.request, &same, error));
  /* A program that was built when requests ended with `sampling`. */
  longer.request.size = offsetof(reprise_request, answers);
  longer.request.answers = -5;
  EXPECT_OK(reprise_generate(engine, &longer.request, &same, error));
  EXPECT(blob_is(same, reprise_blob_data(whole)));
  reprise_blob_free(same);
  longer.request.size = 3;
  EXPECT_FAILS(REPRISE_INVALID, "request.size", reprise_generate(engine, &longer.request, &same, error));
  longer.request = hello(&sampling.sampling, 6);
  reprise_sampling_init(&sampling.sampling, sizeof sampling);
  EXPECT(sampling.newer[2] == 0 && sampling.sampling.size == sizeof sampling);
  sampling.sampling.temperature = 0;
  sampling.sampling.max_tokens = 6;
  sampling.sampling.flags = REPRISE_IGNORE_EOS;
  EXPECT_OK(reprise_generate(engine, &longer.request, &same, error));
  EXPECT(blob_is(same, reprise_blob_data(whole)));
  reprise_blob_free(same);
  sampling.newer[0] = 1;
  EXPECT_FAILS(REPRISE_INVALID, "sampling.size", reprise_generate(engine, &longer.request, &same, error));
  sampling.sampling.size = offsetof(reprise_sampling, seed);
  EXPECT_OK(reprise_generate(engine, &longer.request, &same, error));
  EXPECT(same != NULL);
  reprise_blob_free(same);
  reprise_blob_free(whole);
  memset(&hooks, 0, sizeof hooks);
  hooks.size = 4;
  EXPECT_FAILS(REPRISE_INVALID, "hooks.size", reprise_open(s, &hooks, &other, error));
  EXPECT(other == NULL);
  reprise_settings_free(s);
}

static void requests(reprise_engine* engine) {
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, 4);
  reprise_blob* out = NULL;
  size_t n = 0;
  const int32_t ids[2] = {72, 100000};
  const reprise_text empty = {NULL, 0}, broken = {NULL, 3};
  reprise_text stop = {"", 0};
  EXPECT_FAILS(REPRISE_INVALID, "request", reprise_submit(engine, NULL, NULL, error));
  EXPECT_FAILS(REPRISE_INVALID, "text", reprise_generate(engine, &r, NULL, error));
#define REFUSED(code, place, change)                                      \
  do {                                                                    \
    r = hello(&sampling, 4);                                              \
    change;                                                               \
    EXPECT_FAILS(code, place, reprise_generate(engine, &r, &out, error)); \
  } while (0)
  REFUSED(REPRISE_INVALID, "prompt", r.prompt = empty);
  REFUSED(REPRISE_INVALID, "prompt", r.messages = text_of("[]"));
  REFUSED(REPRISE_INVALID, "prompt", r.prompt = broken);
  REFUSED(REPRISE_INVALID, "prompt", (r.prompt = empty, r.ids = ids, r.id_count = 2));
  REFUSED(REPRISE_INVALID, "ids", (r.prompt = empty, r.id_count = 2));
  REFUSED(REPRISE_INVALID, "chat", r.chat = text_of("{}"));
  REFUSED(REPRISE_INVALID, "messages", (r.prompt = empty, r.messages = text_of("[{\"role\"")));
  REFUSED(REPRISE_INVALID, "chat.tool",
          (r.prompt = empty, r.messages = text_of("[]"), r.chat = text_of("{\"tool\": 1}")));
  REFUSED(REPRISE_INVALID, "answers", r.answers = -1);
  REFUSED(REPRISE_INVALID, "answers", r.answers = 2);
  REFUSED(REPRISE_INVALID, "deadline_s", r.deadline_s = -1);
  REFUSED(REPRISE_UNSUPPORTED, "adapter", r.adapter = text_of("a"));
  REFUSED(REPRISE_INVALID, "sampling.temperature", sampling.temperature = -1);
  REFUSED(REPRISE_INVALID, "sampling.top_p", sampling.top_p = 2);
  REFUSED(REPRISE_INVALID, "sampling.logprobs", sampling.logprobs = -2);
  REFUSED(REPRISE_INVALID, "sampling.prompt_logprobs", sampling.prompt_logprobs = 1 << 30);
  REFUSED(REPRISE_INVALID, "sampling.stop", sampling.stop_count = 1);
  REFUSED(REPRISE_INVALID, "sampling.stop", (sampling.stop = &stop, sampling.stop_count = 1));
  REFUSED(REPRISE_INVALID, "sampling.stop_ids", (sampling.stop_ids = ids, sampling.stop_id_count = 2));
  REFUSED(REPRISE_INVALID, "sampling.bias", sampling.bias_count = 1);
  REFUSED(REPRISE_INVALID, "sampling.form", sampling.form = 99);
  REFUSED(REPRISE_UNSUPPORTED, "sampling.form", sampling.form = REPRISE_EBNF);
  REFUSED(REPRISE_INVALID, "sampling.form_text", (sampling.form = REPRISE_REGEX, sampling.form_text = text_of("(")));
  REFUSED(REPRISE_INVALID, "sampling.form_text", (sampling.form = REPRISE_CHOICE, sampling.form_text = text_of("{}")));
#undef REFUSED
  EXPECT(out == NULL);
  EXPECT_FAILS(REPRISE_INVALID, "what", reprise_describe(engine, "weather", &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "what", reprise_describe(engine, NULL, &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "out", reprise_describe(engine, "model", NULL, error));
  EXPECT_FAILS(REPRISE_INVALID, "text", reprise_encode(engine, broken, 0, &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "ids", reprise_decode(engine, NULL, 3, 0, &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine_thread", reprise_step(engine, NULL, error));
  EXPECT_FAILS(REPRISE_INVALID, "events", reprise_poll(engine, 0, NULL, &n, error));
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "", reprise_embed(engine, &stop, 1, "", &n, &out, error));
  reprise_cancel(engine, 12345);
}

int main(int argc, char** argv) {
  reprise_engine* engine;
  if (argc != 2) return 2;
  test_begin();
  no_engine();
  settings(argv[1]);
  engine = open_small(argv[1], NULL);
  sizes(argv[1], engine);
  requests(engine);
  reprise_close(engine);
  return test_end();
}
