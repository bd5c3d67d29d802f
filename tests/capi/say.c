/* Prints an answer: NAME=VALUE settings, then -- and the prompt. With "chat" before the prompt it is a user's message.
 */
#include "test.h"

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
  r.prompt = text_of(argv[i + 1]);
  if (strcmp(argv[i + 1], "chat") == 0) {
    r.prompt.size = 0;
    r.messages = text_of(argv[i + 2]);
  }
  if (reprise_generate(engine, &r, &text, &error)) goto failed;
  fwrite(reprise_blob_data(text), 1, reprise_blob_size(text), stdout);
  reprise_blob_free(text);
  reprise_close(engine);
  reprise_settings_free(s);
  return 0;
failed:
  fprintf(stderr, "%s: %s\n", reprise_error_place(error), reprise_error_message(error));
  return 1;
}
