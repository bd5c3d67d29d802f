/* A model in a program of one's own, on the caller's thread: progress, an answer as it comes, an error with its place.
 *
 *   embed "Once upon a time" [NAME=VALUE...]     settings of docs/configuration.md, "model-path=smollm2" */
#include <reprise.h>
#include <stdio.h>
#include <string.h>

static int32_t show(void* context, const char* stage, uint64_t done, uint64_t total) {
  (void)context;
  fprintf(stderr, "\r%s: %3.0f %%", stage, 100.0 * (double)done / (double)total);
  return 0;
}

static void print(void* finished, const reprise_event* event) {
  fwrite(event->text.data, 1, event->text.size, stdout);
  if (event->kind == REPRISE_FINISHED) *(int*)finished = 1;
}

int main(int argc, char** argv) {
  int i, finished = 0;
  reprise_error* error = NULL;
  reprise_engine* engine = NULL;
  reprise_settings* settings = reprise_settings_new();
  reprise_hooks hooks = {sizeof hooks, &finished, NULL, show, NULL, print};
  reprise_request request = {0};
  reprise_code code = reprise_settings_set(settings, "engine-thread", "off", &error);
  for (i = 2; i < argc && !code; ++i) {
    char* value = strchr(argv[i], '=');
    if (value) *value++ = 0;
    code = reprise_settings_set(settings, argv[i], value ? value : "true", &error);
  }
  if (!code) code = reprise_open(settings, &hooks, &engine, &error);
  request.size = sizeof request;
  request.prompt.data = argc > 1 ? argv[1] : "Once upon a time";
  request.prompt.size = strlen(request.prompt.data);
  if (!code) code = reprise_submit(engine, &request, NULL, &error);
  while (!code && !finished) code = reprise_step(engine, NULL, &error);
  if (code) fprintf(stderr, "%s: %s\n", reprise_error_place(error), reprise_error_message(error));
  reprise_error_free(error);
  reprise_close(engine);
  reprise_settings_free(settings);
  return code != REPRISE_OK;
}
