// Fields: reads the fields of a JSON object that a client sent, each with its type and range. The first thing wrong is
// kept, with the field's name; later reads give defaults, so a parser reads everything and asks once. Null counts as
// absent. It points into the object. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace reprise::server {

class Fields {
 public:
  // `path` is put in front of the names of fields in errors: "messages[2].".
  explicit Fields(const Json& object, std::string path = "");

  bool has(const char* name) const { return find(name) != nullptr; }
  const Json* find(const char* name) const;  // null when absent
  std::string name_of(std::string_view name) const { return path_ + std::string(name); }

  bool flag(const char* name, bool otherwise);
  int64_t integer(const char* name, int64_t otherwise, int64_t low, int64_t high);
  std::optional<int64_t> maybe_integer(const char* name, int64_t low, int64_t high);
  double number(const char* name, double otherwise, double low, double high);
  std::optional<double> maybe_number(const char* name, double low, double high);
  std::string text(const char* name, std::string otherwise);
  std::optional<std::string> maybe_text(const char* name);
  // One text or a list of at most `most` of them.
  std::vector<std::string> texts(const char* name, size_t most);
  std::vector<int32_t> ids(const char* name, size_t most, int64_t vocab);

  void fail(std::string_view name, std::string message);
  void take(std::optional<ApiError> other);  // of a nested reader
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json* object_;
  std::string path_;
  std::optional<ApiError> error_;
};

// A member of an object that Fields does not read; null when it is absent, null or no object's.
const OrderedJson* given(const OrderedJson& object, const char* name);

// JSON in one line, with bytes that are no UTF-8 replaced.
std::string dumped(const OrderedJson& json);

}  // namespace reprise::server
