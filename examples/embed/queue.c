/* Two requests in the event loop of a program: their events wait at a descriptor; one is cancelled after its tenth token.
 *
 *   queue NAME=VALUE...     settings of docs/configuration.md, "model-path=smollm2" */
#include <poll.h>
#include <reprise.h>
#include <stdio.h>
#include <string.h>

static reprise_code ask(reprise_engine* engine, const char* prompt, int tokens, uint64_t* id, reprise_error** error) {
  reprise_sampling sampling;
  reprise_request request = {0};
  reprise_sampling_init(&sampling, sizeof sampling);
  sampling.max_tokens = tokens;
  sampling.flags = REPRISE_IGNORE_EOS;
  request.size = sizeof request;
  request.sampling = &sampling;
  request.prompt.data = prompt;
  request.prompt.size = strlen(prompt);
  return reprise_submit(engine, &request, id, error);
}

int main(int argc, char** argv) {
  int i, running = 2;
  uint64_t first = 0, second = 0;
  reprise_error* error = NULL;
  reprise_engine* engine = NULL;
  reprise_settings* settings = reprise_settings_new();
  reprise_code code = REPRISE_OK;
  for (i = 1; i < argc && !code; ++i) {
    char* value = strchr(argv[i], '=');
    if (value) *value++ = 0;
    code = reprise_settings_set(settings, argv[i], value ? value : "true", &error);
  }
  if (!code) code = reprise_open(settings, NULL, &engine, &error);
  if (!code) code = ask(engine, "The sea is", 40, &first, &error);
  if (!code) code = ask(engine, "The sky is", 4000, &second, &error);
  while (!code && running > 0) {
    const reprise_event* const* events = NULL;
    size_t count = 0, e;
    struct pollfd wait[1];
    wait[0].fd = reprise_event_fd(engine); /* beside the program's own descriptors */
    wait[0].events = POLLIN;
    if (poll(wait, 1, -1) < 0) break;
    code = reprise_poll(engine, 0, &events, &count, &error);
    for (e = 0; e < count; ++e) {
      if (events[e]->request == second && events[e]->completion_tokens >= 10) reprise_cancel(engine, second);
      if (events[e]->kind != REPRISE_FINISHED) continue;
      printf("request %d: %d tokens, %s\n", events[e]->request == first ? 1 : 2, (int)events[e]->completion_tokens,
             events[e]->finish == REPRISE_ENDED ? "cancelled" : "complete");
      --running;
    }
  }
  if (code) fprintf(stderr, "%s: %s\n", reprise_error_place(error), reprise_error_message(error));
  reprise_error_free(error);
  reprise_close(engine);
  reprise_settings_free(settings);
  return code != REPRISE_OK;
}
