/* Vectors and scores. Arguments: the small model, one that gives vectors (mean), one that gives scores. That they are
 * those of `reprise embed` is library_test.py's. */
#include "test.h"

static reprise_engine* open_at(const char* folder, const char* thread, const char* queued) {
  reprise_settings* s = reprise_settings_new();
  reprise_engine* engine = NULL;
  EXPECT_OK(reprise_settings_set(s, "model-path", folder, error));
  EXPECT_OK(reprise_settings_json(s, text_of("{\"threads\": 1, \"device\": \"cpu\", \"plan_cache\": \"off\"}"), error));
  EXPECT_OK(reprise_settings_set(s, "engine-thread", thread, error));
  if (queued) EXPECT_OK(reprise_settings_set(s, "max-queued-requests", queued, error));
  EXPECT_OK(reprise_open(s, NULL, &engine, error));
  reprise_settings_free(s);
  if (!engine) exit(1);
  return engine;
}

static int same(const reprise_blob* a, const char* part, size_t size) {
  return a && reprise_blob_size(a) == size && memcmp(reprise_blob_data(a), part, size) == 0;
}

static void vectors(const char* folder) {
  reprise_engine* engine = open_at(folder, "on", NULL);
  reprise_engine* stepped = open_at(folder, "off", "1");
  const reprise_text broken = {NULL, 3};
  reprise_text texts[9];
  reprise_blob *all = NULL, *out = NULL;
  reprise_sampling sampling;
  reprise_request r = hello(&sampling, 4);
  size_t n = 0, m = 0;
  int i;
  for (i = 0; i < 9; ++i) texts[i] = text_of(i % 2 ? "A graph is captured once." : "The sea is blue.");
  EXPECT_OK(reprise_embed(engine, texts, 9, NULL, &n, &all, error));
  EXPECT(n > 1 && reprise_blob_size(all) == 9 * n * sizeof(float));
  for (i = 0; i < 9; ++i) {
    const char* row = (const char*)reprise_blob_data(all) + (size_t)i * n * sizeof(float);
    EXPECT_OK(reprise_embed(engine, texts + i, 1, i % 2 ? "" : "mean", &m, &out, error));
    EXPECT(m == n && same(out, row, n * sizeof(float)));
    reprise_blob_free(out);
    out = NULL;
  }
  /* Stepped by its caller, with a queue that is shorter than the list. */
  EXPECT_OK(reprise_embed(stepped, texts, 9, "", &m, &out, error));
  EXPECT(m == n && same(out, reprise_blob_data(all), reprise_blob_size(all)));
  reprise_blob_free(out);
  out = NULL;
  /* A model that gives vectors compares them. */
  EXPECT_OK(reprise_score(engine, texts[1], texts, 2, NULL, &out, error));
  EXPECT(reprise_blob_size(out) == 2 * sizeof(float));
  if (out) {
    const float* scores = (const float*)reprise_blob_data(out);
    EXPECT(scores[1] > 0.999f && scores[1] < 1.001f && scores[0] < scores[1]);
  }
  reprise_blob_free(out);
  out = NULL;
  EXPECT_FAILS(REPRISE_INVALID, "inputs", reprise_embed(engine, NULL, 2, "", &n, &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "inputs", reprise_embed(engine, texts, 0, "", &n, &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "inputs", reprise_embed(engine, &broken, 1, "", &n, &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "dimension", reprise_embed(engine, texts, 1, "", NULL, &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "floats", reprise_embed(engine, texts, 1, "", &n, NULL, error));
  EXPECT_FAILS(REPRISE_INVALID, "pooling", reprise_embed(engine, texts, 1, "largest", &n, &out, error));
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "pooling", reprise_embed(engine, texts, 1, "cls", &n, &out, error));
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "", reprise_generate(engine, &r, &out, error));
  EXPECT(out == NULL && n == 0);
  reprise_blob_free(all);
  reprise_close(stepped);
  reprise_close(engine);
}

static void scores(const char* folder) {
  reprise_engine* engine = open_at(folder, "on", NULL);
  reprise_text texts[2];
  const reprise_text query = text_of("what is captured?"), broken = {NULL, 3}, empty = {NULL, 0};
  reprise_blob* out = NULL;
  size_t n = 0;
  texts[0] = text_of("A graph is captured once.");
  texts[1] = text_of("The sea is blue.");
  EXPECT_OK(reprise_score(engine, query, texts, 2, "", &out, error));
  EXPECT(reprise_blob_size(out) == 2 * sizeof(float));
  reprise_blob_free(out);
  out = NULL;
  EXPECT_FAILS(REPRISE_INVALID, "query", reprise_score(engine, empty, texts, 2, "", &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "query", reprise_score(engine, broken, texts, 2, "", &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "documents", reprise_score(engine, query, NULL, 2, "", &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "documents", reprise_score(engine, query, texts, 0, "", &out, error));
  EXPECT_FAILS(REPRISE_INVALID, "floats", reprise_score(engine, query, texts, 2, "", NULL, error));
  EXPECT_FAILS(REPRISE_INVALID, "engine", reprise_score(NULL, query, texts, 2, "", &out, error));
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "", reprise_embed(engine, texts, 2, "", &n, &out, error));
  EXPECT(out == NULL);
  reprise_close(engine);
}

static void of_a_model_that_writes(const char* folder) {
  reprise_engine* engine = open_small(folder, NULL);
  const reprise_text one = text_of("a");
  reprise_blob* out = NULL;
  size_t n = 7;
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "", reprise_embed(engine, &one, 1, "", &n, &out, error));
  EXPECT_FAILS(REPRISE_UNSUPPORTED, "", reprise_score(engine, one, &one, 1, "", &out, error));
  EXPECT(n == 0 && out == NULL);
  reprise_close(engine);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  test_begin();
  of_a_model_that_writes(argv[1]);
  vectors(argv[2]);
  scores(argv[3]);
  return test_end();
}
