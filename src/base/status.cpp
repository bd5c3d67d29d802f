#include "base/status.h"

#include <cstdio>
#include <cstdlib>

#include "base/hooks.h"

namespace reprise {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::Ok: return "ok";
    case Code::Invalid: return "invalid";
    case Code::NotFound: return "not found";
    case Code::Unsupported: return "unsupported";
    case Code::OutOfMemory: return "out of memory";
    case Code::Busy: return "busy";
    case Code::Cancelled: return "cancelled";
    case Code::Device: return "device";
    case Code::DeviceLost: return "device lost";
    case Code::Internal: return "internal";
  }
  return "unknown";
}

Status Status::at(std::string_view place) const& {
  if (is_ok()) return *this;
  return Status(code_, fmt::format("{}: {}", place, message_));
}

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  const std::string text = fmt::format("{}:{}: this is a bug in Reprise: {} does not hold{}{}", file, line, expression,
                                       message.empty() ? "" : ": ", message);
  if (const Hooks* hooks = current_hooks()) {
    if (hooks->log) hooks->log(log::Level::Error, text);
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  std::abort();
}

}  // namespace reprise
