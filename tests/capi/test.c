#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <fcntl.h>

int test_report = 2;
int test_failures = 0;

void test_begin(void) {
  FILE* quiet = tmpfile();
  test_report = dup(2);
  if (!quiet || test_report < 0) exit(3);
  dup2(fileno(quiet), 1);
  dup2(fileno(quiet), 2);
}

int test_end(void) {
  struct stat said;
  fflush(stdout);
  fflush(stderr);
  if (fstat(2, &said) != 0 || said.st_size != 0) {
    char text[2000];
    const ssize_t n = pread(2, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    test_fail(__FILE__, __LINE__, "nothing is written to files 1 and 2", text);
  }
  return test_failures ? 1 : 0;
}

void test_fail(const char* file, int line, const char* what, const char* more) {
  char text[3000];
  const int n = snprintf(text, sizeof text, "%s:%d: %s: %s\n", file, line, what, more);
  ++test_failures;
  if (n > 0 && write(test_report, text, strlen(text)) < 0) exit(3);
}

reprise_text text_of(const char* text) {
  reprise_text t;
  t.data = text;
  t.size = strlen(text);
  return t;
}

int blob_is(const reprise_blob* blob, const char* text) {
  return blob && reprise_blob_size(blob) == strlen(text) && memcmp(reprise_blob_data(blob), text, strlen(text)) == 0;
}

reprise_settings* small_model(const char* folder) {
  reprise_settings* s = reprise_settings_new();
  EXPECT(s != NULL);
  EXPECT_OK(reprise_settings_set(s, "model-path", folder, error));
  EXPECT_OK(reprise_settings_json(
      s, text_of("{\"load-format\": \"dummy\", \"threads\": 1, \"device\": \"cpu\", \"plan_cache\": \"off\"}"), error));
  return s;
}

reprise_engine* open_small(const char* folder, const reprise_hooks* hooks) {
  reprise_settings* s = small_model(folder);
  reprise_engine* engine = NULL;
  EXPECT_OK(reprise_open(s, hooks, &engine, error));
  reprise_settings_free(s);
  if (!engine) exit(1);
  return engine;
}

reprise_request hello(reprise_sampling* sampling, int64_t tokens) {
  reprise_request r;
  memset(&r, 0, sizeof r);
  r.size = sizeof r;
  reprise_sampling_init(sampling, sizeof *sampling);
  sampling->temperature = 0;
  sampling->max_tokens = tokens;
  sampling->flags = REPRISE_IGNORE_EOS;
  r.sampling = sampling;
  r.prompt = text_of("Hello");
  return r;
}
