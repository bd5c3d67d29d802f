// What the tests in C share. Each is a program: its arguments are the folder of a small model, then its own. Files 1
// and 2 are files of the test: whatever the library wrote there fails it.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reprise.h"

extern int test_report; /* where failures are told */
extern int test_failures;
void test_begin(void);
int test_end(void); /* the exit status */
void test_fail(const char* file, int line, const char* what, const char* more);

#define EXPECT(expr)                                       \
  do {                                                     \
    if (!(expr)) test_fail(__FILE__, __LINE__, #expr, ""); \
  } while (0)
/* A call that gives a code. */
#define EXPECT_OK(expr)                                                                                      \
  do {                                                                                                       \
    reprise_error* error_ = NULL;                                                                            \
    reprise_error** error = &error_;                                                                         \
    if ((expr) != REPRISE_OK || error_) test_fail(__FILE__, __LINE__, #expr, reprise_error_message(error_)); \
    reprise_error_free(error_);                                                                              \
  } while (0)
/* One that fails, with an error that has words and this place. */
#define EXPECT_FAILS(code, where, expr)                                                             \
  do {                                                                                              \
    reprise_error* error_ = NULL;                                                                   \
    reprise_error** error = &error_;                                                                \
    const reprise_code code_ = (expr);                                                              \
    if (code_ != (code) || reprise_error_code(error_) != (code) || !*reprise_error_message(error_)) \
      test_fail(__FILE__, __LINE__, #expr, reprise_error_message(error_));                          \
    if (strcmp(reprise_error_place(error_), where) != 0)                                            \
      test_fail(__FILE__, __LINE__, #expr, reprise_error_place(error_));                            \
    reprise_error_free(error_);                                                                     \
  } while (0)

reprise_text text_of(const char* text);
int blob_is(const reprise_blob* blob, const char* text);
/* Settings of the small model: random weights, one thread of computation, no caches. */
reprise_settings* small_model(const char* folder);
reprise_engine* open_small(const char* folder, const reprise_hooks* hooks);
/* "Hello", greedy, so many tokens, none of which ends it. `sampling` is filled for it. */
reprise_request hello(reprise_sampling* sampling, int64_t tokens);
