// FieldReader: typed, range-checked reads from one JSON object, with errors that name the source, the key and what is
// allowed. A missing key and null are the same. Borrows the JSON; one thread at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace reprise::checkpoint {

class FieldReader {
 public:
  // `object` is a JSON object; `place` goes in front of keys ("rope_scaling."), "" at the top.
  FieldReader(const Json& object, std::string_view source, std::string_view place = "")
      : object_(object), source_(source), place_(place) {}

  const Json* find(std::string_view key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  Status integer(std::string_view key, int64_t min, int64_t max, std::optional<int64_t>& out) const {
    const Json* v = find(key);
    if (!v) return Status::ok();
    double d = 0;
    bool whole = v->is_number();
    if (whole && v->is_number_float()) {
      d = v->get<double>();
      whole = d >= -9e15 && d <= 9e15 && d == static_cast<double>(static_cast<int64_t>(d));
    }
    if (!whole) return wrong(key, *v, fmt::format("an integer from {} to {}", min, max));
    bool fits = true;
    int64_t n = 0;
    if (v->is_number_float()) {
      n = static_cast<int64_t>(d);
    } else if (v->is_number_unsigned()) {
      const uint64_t u = v->get<uint64_t>();
      fits = u <= static_cast<uint64_t>(INT64_MAX);
      n = static_cast<int64_t>(u & INT64_MAX);
    } else {
      n = v->get<int64_t>();
    }
    if (!fits || n < min || n > max) return wrong(key, *v, fmt::format("integers from {} to {}", min, max));
    out = n;
    return Status::ok();
  }

  // One number under either of two names; under both it must be the same.
  Status integer_or_alias(std::string_view key, std::string_view alias, int64_t min, int64_t max,
                          std::optional<int64_t>& out) const {
    std::optional<int64_t> one, other;
    RETURN_IF_ERROR(integer(key, min, max, one));
    RETURN_IF_ERROR(integer(alias, min, max, other));
    if (one && other && *one != *other)
      return invalid("{}: {}{} is {}, but {} is {}; allowed: one of them, or the same number", source_, place_, key,
                     *one, alias, *other);
    if (one || other) out = one ? one : other;
    return Status::ok();
  }

  Status number(std::string_view key, double min, double max, std::optional<double>& out) const {
    const Json* v = find(key);
    if (!v) return Status::ok();
    const double d = v->is_number() ? v->get<double>() : 0;
    if (!v->is_number() || !(d >= min && d <= max))
      return wrong(key, *v, fmt::format("numbers from {} to {}", min, max));
    out = d;
    return Status::ok();
  }

  Status boolean(std::string_view key, std::optional<bool>& out) const {
    const Json* v = find(key);
    if (!v) return Status::ok();
    if (!v->is_boolean()) return wrong(key, *v, "true, false");
    out = v->get<bool>();
    return Status::ok();
  }

  Status string(std::string_view key, std::optional<std::string>& out) const {
    const Json* v = find(key);
    if (!v) return Status::ok();
    if (!v->is_string()) return wrong(key, *v, "a string");
    out = v->get<std::string>();
    return Status::ok();
  }

  // One of `allowed`, the default where there is none; anything else is an error.
  Status choice(std::string_view key, std::initializer_list<std::string_view> allowed, std::string_view missing,
                std::string& out) const {
    std::optional<std::string> given;
    RETURN_IF_ERROR(string(key, given));
    out = given.value_or(std::string(missing));
    for (const std::string_view a : allowed)
      if (a == out) return Status::ok();
    return wrong(key, Json(out), fmt::format("\"{}\"", fmt::join(allowed, "\", \"")));
  }

  // The same with a default, or an error when there is none and the key is missing.
  Status integer(std::string_view key, int64_t min, int64_t max, std::optional<int64_t> missing, int64_t& out) const {
    std::optional<int64_t> v = missing;
    RETURN_IF_ERROR(integer(key, min, max, v));
    if (!v) return absent(key, fmt::format("integers from {} to {}", min, max));
    out = *v;
    return Status::ok();
  }
  Status number(std::string_view key, double min, double max, std::optional<double> missing, double& out) const {
    std::optional<double> v = missing;
    RETURN_IF_ERROR(number(key, min, max, v));
    if (!v) return absent(key, fmt::format("numbers from {} to {}", min, max));
    out = *v;
    return Status::ok();
  }
  Status boolean(std::string_view key, bool missing, bool& out) const {
    std::optional<bool> v;
    RETURN_IF_ERROR(boolean(key, v));
    out = v.value_or(missing);
    return Status::ok();
  }

  Status wrong(std::string_view key, const Json& value, std::string_view allowed) const {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    return invalid("{}: {}{} is {}; allowed: {}", source_, place_, key, text, allowed);
  }
  Status absent(std::string_view key, std::string_view allowed) const {
    return invalid("{}: {}{} is missing; allowed: {}", source_, place_, key, allowed);
  }

 private:
  const Json& object_;
  std::string source_, place_;
};

// A token id or a list of them, as eos_token_id may be; -1 means none.
Status read_token_list(const FieldReader& in, std::string_view key, std::vector<int64_t>& out);

}  // namespace reprise::checkpoint
