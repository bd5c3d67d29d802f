// Status and Result<T>: how every fallible function of the house answers.
//
// A Status is a code, a message for a person, and nothing else; Result<T> is a value or a Status. Bad input and busy
// devices come back as values of these types; a broken invariant of ours stops at once (base/check.h). Nothing is
// thrown across a folder border. Both types are plain values and may be used from any thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace reprise {

enum class Code : uint8_t {
  Ok,
  Invalid,      // the caller's input is wrong; the message names the place and the allowed values
  NotFound,     // a file, name or entry does not exist
  Unsupported,  // well-formed, but this build or device cannot do it
  OutOfMemory,
  Busy,
  Cancelled,
  Device,      // a device reported an error
  DeviceLost,  // and nothing that follows on it can work: what its memory holds is worth nothing
  Internal,    // a bug of ours that could still be reported politely
};

std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // Ok
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }

  bool is_ok() const { return code_ == Code::Ok; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same status with "place: " in front of its message; Ok stays Ok.
  Status at(std::string_view place) const&;

 private:
  Code code_ = Code::Ok;
  std::string message_;
};

// error(Code::Invalid, "size {} is not {}", a, b)
template <typename... Args>
Status error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Status(Code::Invalid, fmt::format(format, std::forward<Args>(args)...));
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: a value is a result
  Result(Status status) : status_(std::move(status)) {  // NOLINT: so is an error
    CHECK(!status_.is_ok(), "a Result cannot be made from an Ok status");
  }

  bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }

  T& value() & {
    CHECK(value_.has_value(), "{}", status_.message());
    return *value_;
  }
  const T& value() const& {
    CHECK(value_.has_value(), "{}", status_.message());
    return *value_;
  }
  T&& value() && {
    CHECK(value_.has_value(), "{}", status_.message());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace reprise

#define REPRISE_CONCAT2(a, b) a##b
#define REPRISE_CONCAT(a, b) REPRISE_CONCAT2(a, b)

// Returns from the enclosing function when `expr` (a Status) is not Ok.
#define RETURN_IF_ERROR(expr)                             \
  do {                                                    \
    ::reprise::Status reprise_status_ = (expr);           \
    if (!reprise_status_.is_ok()) return reprise_status_; \
  } while (0)

// ASSIGN_OR_RETURN(auto x, f()); declares x from a Result or returns its Status.
#define ASSIGN_OR_RETURN(decl, expr) ASSIGN_OR_RETURN_IMPL(REPRISE_CONCAT(reprise_result_, __LINE__), decl, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, decl, expr) \
  auto tmp = (expr);                           \
  if (!tmp.is_ok()) return tmp.status();       \
  decl = std::move(tmp).value()
