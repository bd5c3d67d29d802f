// CHECK: an invariant of ours. When it does not hold the program prints one line and aborts: this is a bug in Reprise,
// never an answer to bad input (that is base/status.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace reprise {

[[noreturn]] void check_failed(const char* expression, const char* file, int line, const std::string& message);

}  // namespace reprise

#define CHECK(expr, ...)                                                                 \
  do {                                                                                   \
    if (!(expr)) [[unlikely]]                                                            \
      ::reprise::check_failed(#expr, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (0)

#ifdef NDEBUG
#define DCHECK(expr, ...) \
  do {                    \
  } while (0)
#else
#define DCHECK(expr, ...) CHECK(expr, __VA_ARGS__)
#endif
