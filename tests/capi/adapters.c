/* LoRA adapters: loaded, chosen by request, unloaded, refused. The arguments behind the small model's folder: the model
 * that the adapters are for, and the adapter that tests/lora holds to PEFT's logits. */
#include "test.h"

enum { TOKENS = 8 };

/* The log-probabilities of one greedy answer, which differ where the tokens do not; how many there are. */
static size_t answer(reprise_engine* engine, const char* adapter, float* out) {
  static const int32_t prompt[] = {5, 17, 40, 9, 121, 60, 33};
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, TOKENS);
  size_t n = 0, i, count;
  int finished = 0;
  sampling.logprobs = 0;
  r.prompt.size = 0;
  r.ids = prompt;
  r.id_count = sizeof prompt / sizeof *prompt;
  r.adapter = text_of(adapter);
  EXPECT_OK(reprise_submit(engine, &r, NULL, error));
  while (!finished) {
    const reprise_event* const* events = NULL;
    EXPECT_OK(reprise_poll(engine, 20000, &events, &count, error));
    if (!count) return 0;
    for (i = 0; i < count; ++i) {
      if (events[i]->kind == REPRISE_TOKENS && n + events[i]->id_count <= TOKENS) {
        memcpy(out + n, events[i]->logprobs, events[i]->id_count * sizeof *out);
        n += events[i]->id_count;
      }
      finished += events[i]->kind == REPRISE_FINISHED;
    }
  }
  return n;
}

int main(int argc, char** argv) {
  reprise_engine* engine = NULL;
  reprise_settings* s;
  float base[TOKENS], style[TOKENS], again[TOKENS];
  test_begin();
  if (argc != 4) return 2;
  s = reprise_settings_new();
  EXPECT_OK(reprise_settings_set(s, "model-path", argv[2], error));
  EXPECT_OK(reprise_settings_json(
      s, text_of("{\"threads\": 1, \"device\": \"cpu\", \"plan_cache\": \"off\", \"max-loras\": 1}"), error));
  EXPECT_OK(reprise_open(s, NULL, &engine, error));
  if (!engine) return test_end();
  EXPECT(answer(engine, "", base) == TOKENS);
  EXPECT_FAILS(REPRISE_NOT_FOUND, "path", reprise_load_adapter(engine, text_of("a"), text_of("/no/such"), error));
  EXPECT_OK(reprise_load_adapter(engine, text_of("style"), text_of(argv[3]), error));
  EXPECT_FAILS(REPRISE_INVALID, "path", reprise_load_adapter(engine, text_of("style"), text_of(argv[3]), error));
  EXPECT_FAILS(REPRISE_BUSY, "max_loras", reprise_load_adapter(engine, text_of("b"), text_of(argv[3]), error));
  EXPECT_FAILS(REPRISE_INVALID, "name", reprise_load_adapter(engine, text_of(""), text_of(argv[3]), error));
  EXPECT(answer(engine, "style", style) == TOKENS && memcmp(base, style, sizeof base) != 0);
  EXPECT(answer(engine, "", again) == TOKENS && memcmp(base, again, sizeof base) == 0);
  EXPECT_OK(reprise_unload_adapter(engine, text_of("style"), error));
  EXPECT_FAILS(REPRISE_NOT_FOUND, "name", reprise_unload_adapter(engine, text_of("style"), error));
  EXPECT_OK(reprise_load_adapter(engine, text_of("again"), text_of(argv[3]), error));
  EXPECT(answer(engine, "again", again) == TOKENS && memcmp(style, again, sizeof base) == 0);
  reprise_close(engine);
  /* At the start, by the setting. */
  engine = NULL;
  {
    char module[4096];
    snprintf(module, sizeof module, "at-start=%s", argv[3]);
    EXPECT_OK(reprise_settings_set(s, "lora-modules", module, error));
  }
  EXPECT_OK(reprise_open(s, NULL, &engine, error));
  if (engine) EXPECT(answer(engine, "at-start", again) == TOKENS && memcmp(style, again, sizeof base) == 0);
  reprise_close(engine);
  reprise_settings_free(s);
  /* Without slots. */
  engine = open_small(argv[1], NULL);
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "enable_lora",
               reprise_load_adapter(engine, text_of("style"), text_of(argv[3]), error));
  EXPECT_FAILS(REPRISE_NOT_FOUND, "name", reprise_unload_adapter(engine, text_of("style"), error));
  reprise_close(engine);
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_load_adapter(NULL, text_of("a"), text_of("b"), error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_unload_adapter(NULL, text_of("a"), error));
  return test_end();
}
