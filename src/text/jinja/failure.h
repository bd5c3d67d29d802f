// Failure: how the inside of the Jinja folder reports an error. It is thrown by fail() and caught at the border
// (template.cpp), which turns it into a Status with the template line. Nothing of it leaves src/text/jinja.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace reprise::text::jinja {

struct Failure {
  std::string message;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace reprise::text::jinja
