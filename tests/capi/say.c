/* Prints an answer: NAME=VALUE settings, then -- and the prompt. With "chat" before the prompt it is a user's message;
 * with "embed" what follows are texts, whose vectors are printed, and with "score" a query and its documents. */
#include "test.h"

/* Each float as the nine digits that are it alone. */
static void print_floats(const reprise_blob* floats, size_t width) {
  const float* f = (const float*)reprise_blob_data(floats);
  size_t i;
  for (i = 0; i < reprise_blob_size(floats) / sizeof *f; ++i) printf("%.9g%s", f[i], (i + 1) % width ? " " : "\n");
}

static int pooled(reprise_engine* engine, int count, char** words, reprise_error** error) {
  const int score = strcmp(words[0], "score") == 0;
  reprise_text texts[16];
  reprise_blob* floats = NULL;
  size_t width = 1;
  int i;
  reprise_code code;
  for (i = 1; i < count && i < 16; ++i) texts[i] = text_of(words[i]);
  code = score ? reprise_score(engine, texts[1], texts + 2, (size_t)i - 2, NULL, &floats, error)
               : reprise_embed(engine, texts + 1, (size_t)i - 1, NULL, &width, &floats, error);
  if (code == REPRISE_OK) print_floats(floats, width);
  reprise_blob_free(floats);
  return code == REPRISE_OK;
}

int main(int argc, char** argv) {
  reprise_settings* s = reprise_settings_new();
  reprise_engine* engine = NULL;
  reprise_error* error = NULL;
  reprise_blob* text = NULL;
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, 24);
  int i;
  sampling.temperature = 0.8;
  sampling.flags = REPRISE_SEEDED;
  sampling.seed = 3;
  for (i = 1; i < argc && strcmp(argv[i], "--") != 0; ++i) {
    char* value = strchr(argv[i], '=');
    if (!value) return 2;
    *value++ = 0;
    if (reprise_settings_set(s, argv[i], value, &error)) goto failed;
  }
  if (argc - i < 2) return 2;
  if (reprise_open(s, NULL, &engine, &error)) goto failed;
  if (strcmp(argv[i + 1], "embed") == 0 || strcmp(argv[i + 1], "score") == 0) {
    if (!pooled(engine, argc - i - 1, argv + i + 1, &error)) goto failed;
    goto done;
  }
  r.prompt = text_of(argv[i + 1]);
  if (strcmp(argv[i + 1], "chat") == 0) {
    r.prompt.size = 0;
    r.messages = text_of(argv[i + 2]);
  }
  if (reprise_generate(engine, &r, &text, &error)) goto failed;
  fwrite(reprise_blob_data(text), 1, reprise_blob_size(text), stdout);
  reprise_blob_free(text);
done:
  reprise_close(engine);
  reprise_settings_free(s);
  return 0;
failed:
  fprintf(stderr, "%s: %s\n", reprise_error_place(error), reprise_error_message(error));
  return 1;
}
