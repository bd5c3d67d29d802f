// Failure: a Status, and the setting or field at fault. guarded(): the wall around every entry of the library, through
// which no exception goes. Plain values and functions; any thread.
#pragma once

#include <exception>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include <reprise.h>
#include "base/hooks.h"
#include "base/status.h"

struct reprise_error {
  reprise_code code = REPRISE_OK;
  std::string message, place;
};
struct reprise_blob {
  std::string bytes;
};

namespace reprise::capi {

struct Failure {
  Status status;
  std::string place;

  Failure() = default;
  Failure(Status s);  // NOLINT: the place is the first setting that the message names
  Failure(Status s, std::string where) : status(std::move(s)), place(std::move(where)) {}
  bool is_ok() const { return status.is_ok(); }
};

reprise_error error_of(const Failure& failure);

// Runs `work` with the hooks, which may be null: then nothing is said. Its failure, or what it throws, becomes the code
// and, where `out` is not null, an error.
reprise_code guarded(Hooks* hooks, reprise_error** out, const std::function<Failure()>& work) noexcept;

// A blob for the caller; the error says that `out` is null.
Failure give(reprise_blob** out, std::string bytes);

}  // namespace reprise::capi

// Returns from the enclosing function, which gives a Failure, when `expr` is one.
#define RETURN_IF_FAILURE(expr)                             \
  do {                                                      \
    ::reprise::capi::Failure reprise_failure_ = (expr);     \
    if (!reprise_failure_.is_ok()) return reprise_failure_; \
  } while (0)
