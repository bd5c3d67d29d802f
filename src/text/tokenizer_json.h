// JsonPlace: one value of a tokenizer.json together with its path, so that every complaint names the place
// ("tokenizer.json: pre_tokenizer.pretokenizers[1].behavior"). It refers to the Json, which must outlive it. One
// thread.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::text {

class JsonPlace {
 public:
  JsonPlace(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }

  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return invalid("{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }
  Status at(const Status& status) const { return status.at(path_); }

  // An object with no other keys than these.
  Status expect_object(std::initializer_list<std::string_view> keys) const;
  // "type" of an object, which must be one of `known`.
  Result<std::string> type(std::initializer_list<std::string_view> known) const;

  bool has(std::string_view key) const;              // present and not null
  JsonPlace operator[](std::string_view key) const;  // has(key) must hold
  Result<std::vector<JsonPlace>> array(std::string_view key) const;
  Result<std::string> string(std::string_view key) const;
  Result<std::string> string_or(std::string_view key, std::string_view fallback) const;  // also for null
  Result<bool> boolean_or(std::string_view key, bool fallback) const;
  Result<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  // A string key whose value must be one of `known`; answers its index.
  Result<size_t> choice(std::string_view key, std::initializer_list<std::string_view> known,
                        std::optional<size_t> fallback = {}) const;

 private:
  std::string path_of(std::string_view key) const;
  Status missing(std::string_view key, std::string_view kind) const;

  const Json* json_;
  std::string path_;
};

// "a, b, c"
std::string join_names(std::initializer_list<std::string_view> names);

}  // namespace reprise::text
