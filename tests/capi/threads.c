/* Two engines at once, and cancellation from eight threads while requests run. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "test.h"

enum { THREADS = 8, EACH = 6 };

static reprise_engine* engine;

static void* submit_and_cancel(void* ids) {
  uint64_t* mine = ids;
  int i;
  for (i = 0; i < EACH; ++i) {
    reprise_sampling sampling;
    reprise_request r = hello(&sampling, 200);
    EXPECT_OK(reprise_submit(engine, &r, &mine[i], error));
    reprise_cancel(engine, mine[i] + 1); /* of another thread, perhaps */
    if (i % 2) reprise_cancel(engine, mine[i]);
  }
  for (i = 0; i < EACH; ++i) reprise_cancel(engine, mine[i]);
  return NULL;
}

static void cancel_everywhere(void) {
  pthread_t threads[THREADS];
  static uint64_t ids[THREADS][EACH];
  static int ends[THREADS * EACH + 1];
  int i, ended = 0, cancelled = 0;
  for (i = 0; i < THREADS; ++i)
    if (pthread_create(&threads[i], NULL, submit_and_cancel, ids[i]) != 0) exit(3);
  while (ended < THREADS * EACH) {
    const reprise_event* const* events = NULL;
    size_t count = 0, e;
    EXPECT_OK(reprise_poll(engine, 20000, &events, &count, error));
    if (count == 0) {
      test_fail(__FILE__, __LINE__, "all requests end", "");
      break;
    }
    for (e = 0; e < count; ++e) {
      if (events[e]->kind != REPRISE_FINISHED) continue;
      /* A thread may be kept from cancelling until an answer has all of its tokens. */
      if (events[e]->finish == REPRISE_ENDED) {
        ++cancelled;
        EXPECT(reprise_error_code(events[e]->error) == REPRISE_CANCELLED);
      } else {
        EXPECT(events[e]->finish == REPRISE_LENGTH || events[e]->finish == REPRISE_STOP);
      }
      EXPECT(events[e]->request >= 1 && events[e]->request <= THREADS * EACH && !ends[events[e]->request]++);
      ++ended;
    }
  }
  for (i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  EXPECT(cancelled > 0);
}

static void* generate_with(void* out) {
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, 16);
  EXPECT_OK(reprise_generate(*(reprise_engine**)out, &r, (reprise_blob**)out + 1, error));
  return NULL;
}

static void two_engines(const char* folder) {
  struct {
    reprise_engine* engine;
    reprise_blob* text;
  } sides[2] = {{engine, NULL}, {NULL, NULL}};
  pthread_t threads[2];
  int i;
  sides[1].engine = open_small(folder, NULL);
  for (i = 0; i < 2; ++i)
    if (pthread_create(&threads[i], NULL, generate_with, &sides[i]) != 0) exit(3);
  for (i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  EXPECT(sides[0].text && blob_is(sides[1].text, reprise_blob_data(sides[0].text)));
  for (i = 0; i < 2; ++i) reprise_blob_free(sides[i].text);
  /* What runs ends with its engine, and the other goes on. */
  {
    reprise_sampling sampling;
    reprise_request r = hello(&sampling, 400);
    reprise_blob* text = NULL;
    EXPECT_OK(reprise_submit(sides[1].engine, &r, NULL, error));
    reprise_close(sides[1].engine);
    r = hello(&sampling, 4);
    EXPECT_OK(reprise_generate(engine, &r, &text, error));
    reprise_blob_free(text);
  }
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  test_begin();
  engine = open_small(argv[1], NULL);
  cancel_everywhere();
  two_engines(argv[1]);
  reprise_close(engine);
  return test_end();
}
