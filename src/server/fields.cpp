#include "server/fields.h"

#include <cmath>

namespace reprise::server {

Fields::Fields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {
  if (!object.is_object()) {
    error_ = ApiError{
        400, fmt::format("{}an object is expected, not {}", path_.empty() ? "" : path_ + ": ", object.type_name())};
    static const Json nothing = Json::object();
    object_ = &nothing;
  }
}

const OrderedJson* given(const OrderedJson& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

const Json* Fields::find(const char* name) const {
  const auto it = object_->find(name);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

std::string dumped(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

void Fields::fail(std::string_view name, std::string message) {
  if (error_) return;
  error_ = ApiError{400, fmt::format("{}: {}", name_of(name), message), name_of(name)};
}

void Fields::take(std::optional<ApiError> other) {
  if (!error_) error_ = std::move(other);
}

bool Fields::flag(const char* name, bool otherwise) {
  const Json* v = find(name);
  if (!v) return otherwise;
  if (v->is_boolean()) return v->get<bool>();
  fail(name, "true or false is expected");
  return otherwise;
}

std::optional<int64_t> Fields::maybe_integer(const char* name, int64_t low, int64_t high) {
  const Json* v = find(name);
  if (!v) return std::nullopt;
  const auto wrong = [&]() -> std::optional<int64_t> {
    fail(name, fmt::format("a whole number from {} to {} is expected", low, high));
    return std::nullopt;
  };
  if (v->is_number_unsigned() && v->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return wrong();
  int64_t n = 0;
  if (v->is_number_integer()) {
    n = v->get<int64_t>();
  } else if (v->is_number_float() && std::floor(v->get<double>()) == v->get<double>() &&
             std::abs(v->get<double>()) < 1e15) {
    n = static_cast<int64_t>(v->get<double>());  // 16.0, as some clients write it
  } else {
    return wrong();
  }
  return n < low || n > high ? wrong() : n;
}

int64_t Fields::integer(const char* name, int64_t otherwise, int64_t low, int64_t high) {
  return maybe_integer(name, low, high).value_or(otherwise);
}

std::optional<double> Fields::maybe_number(const char* name, double low, double high) {
  const Json* v = find(name);
  if (!v) return std::nullopt;
  const double n = v->is_number() ? v->get<double>() : NAN;
  if (n >= low && n <= high) return n;
  fail(name, fmt::format("a number from {} to {} is expected", low, high));
  return std::nullopt;
}

double Fields::number(const char* name, double otherwise, double low, double high) {
  return maybe_number(name, low, high).value_or(otherwise);
}

std::optional<std::string> Fields::maybe_text(const char* name) {
  const Json* v = find(name);
  if (!v) return std::nullopt;
  if (v->is_string()) return v->get<std::string>();
  fail(name, "a string is expected");
  return std::nullopt;
}

std::string Fields::text(const char* name, std::string otherwise) {
  return maybe_text(name).value_or(std::move(otherwise));
}

std::vector<std::string> Fields::texts(const char* name, size_t most) {
  const Json* v = find(name);
  std::vector<std::string> out;
  if (!v) return out;
  if (v->is_string()) return {v->get<std::string>()};
  bool good = v->is_array() && v->size() <= most;
  if (good)
    for (const Json& e : *v) {
      if (!e.is_string()) {
        good = false;
        break;
      }
      out.push_back(e.get<std::string>());
    }
  if (good) return out;
  fail(name, fmt::format("a string, or a list of at most {}, is expected", most));
  return {};
}

std::vector<int32_t> Fields::ids(const char* name, size_t most, int64_t vocab) {
  const Json* v = find(name);
  std::vector<int32_t> out;
  if (!v) return out;
  bool good = v->is_array() && v->size() <= most;
  if (good)
    for (const Json& e : *v) {
      if (!e.is_number_integer() || e < 0 || e >= vocab) {
        good = false;
        break;
      }
      out.push_back(e.get<int32_t>());
    }
  if (good) return out;
  fail(name, fmt::format("a list of at most {} token ids from 0 to {} is expected", most, vocab - 1));
  return {};
}

}  // namespace reprise::server
