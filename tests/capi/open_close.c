/* An engine is opened and closed often; opening is given up at each of its stages. */
#include <dirent.h>

#include "test.h"

static int give_up_at, calls;

static int32_t give_up(void* context, const char* stage, uint64_t done, uint64_t total) {
  (void)context, (void)stage, (void)done, (void)total;
  return ++calls >= give_up_at;
}

static int descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  int n = 0;
  while (folder && readdir(folder)) ++n;
  if (folder) closedir(folder);
  return n;
}

int main(int argc, char** argv) {
  reprise_settings* s;
  reprise_hooks hooks;
  reprise_engine* engine = NULL;
  int i, open_before, stages;
  if (argc != 3) return 2;
  test_begin();
  reprise_close(open_small(argv[1], NULL));
  open_before = descriptors();
  for (i = 0; i < atoi(argv[2]); ++i) {
    reprise_sampling sampling;
    reprise_request r = hello(&sampling, 2);
    engine = open_small(argv[1], NULL);
    EXPECT_OK(reprise_submit(engine, &r, NULL, error));
    reprise_close(engine);
  }
  EXPECT(descriptors() == open_before);
  memset(&hooks, 0, sizeof hooks);
  hooks.size = sizeof hooks;
  hooks.progress = give_up;
  s = small_model(argv[1]);
  give_up_at = 1 << 30;
  EXPECT_OK(reprise_open(s, &hooks, &engine, error));
  reprise_close(engine);
  stages = calls;
  EXPECT(stages > 2);
  for (give_up_at = 1; give_up_at <= stages; give_up_at += 1 + stages / 5) {
    calls = 0;
    EXPECT_FAILS(REPRISE_CANCELLED, "", reprise_open(s, &hooks, &engine, error));
    EXPECT(engine == NULL);
  }
  reprise_settings_free(s);
  return test_end();
}
