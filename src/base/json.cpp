#include "base/json.h"

#include <list>
#include <map>

#include "base/bounded_json.h"

namespace reprise {
namespace {

// Rejects nesting deeper than kMaxJsonDepth in one pass over the text; strings are skipped, everything else is left to
// the parser.
Status check_depth(std::string_view text, std::string_view source) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth)
        return invalid("{}: JSON nested deeper than {} levels at byte {}", source, kMaxJsonDepth, i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return Status::ok();
}

// The members of one object of OrderedJson, which is a list of pairs: finding a key in the list itself takes a time
// that grows with the list, so many keys would take the square of it.
class Members {
 public:
  explicit Members(OrderedJson& object) : members_(*object.get_ptr<OrderedJson::object_t*>()) {}

  // The value of the key, null when the key is new. A key given twice keeps its first place and gets its last value.
  OrderedJson& at(std::string&& key) {
    if (index_.empty() && members_.size() < kFew) {
      for (auto& [name, value] : members_)
        if (name == key) return value;
    } else {
      if (index_.empty())
        for (size_t i = 0; i < members_.size(); ++i) index_.emplace(members_[i].first, i);
      const auto [found, is_new] = index_.emplace(key, members_.size());
      if (!is_new) return members_[found->second].second;
    }
    members_.emplace_back(std::move(key), nullptr);
    return members_.back().second;
  }

 private:
  static constexpr size_t kFew = 16;  // as many are found faster without an index

  OrderedJson::object_t::Container& members_;  // a map would look a position up as a key
  // Ordered: keys that collide in a hash table can be made.
  std::map<std::string, size_t> index_;
};

class MapMembers {
 public:
  explicit MapMembers(Json& object) : members_(*object.get_ptr<Json::object_t*>()) {}
  Json& at(std::string&& key) { return members_[std::move(key)]; }

 private:
  Json::object_t& members_;
};

// Builds the value from the parser's events.
template <typename J, typename Object>
class Builder : public J::json_sax_t {
 public:
  using typename J::json_sax_t::binary_t;
  using typename J::json_sax_t::number_float_t;
  using typename J::json_sax_t::number_integer_t;
  using typename J::json_sax_t::number_unsigned_t;
  using typename J::json_sax_t::string_t;

  Builder(std::string_view source, const JsonLimits& limits) : source_(source), limits_(limits) {}

  J& value() { return root_; }
  const Status& status() const { return status_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(number_integer_t v) override { return add(v); }
  bool number_unsigned(number_unsigned_t v) override { return add(v); }
  bool number_float(number_float_t v, const string_t&) override { return add(v); }
  bool string(string_t& v) override { return add(std::move(v)); }
  bool binary(binary_t&) override { return false; }  // not in text
  bool start_object(std::size_t) override { return open(J::value_t::object); }
  bool key(string_t& k) override {
    if (++members_ > limits_.members) return over("members of objects", limits_.members);
    member_ = &objects_.back().at(std::move(k));
    return true;
  }
  bool end_object() override {
    objects_.pop_back();
    path_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return open(J::value_t::array); }
  bool end_array() override {
    path_.pop_back();
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    // nlohmann's text starts with "[json.exception...] "; what follows names line and column.
    std::string_view what = e.what();
    if (auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
    status_ = invalid("{}: not valid JSON: {}", source_, what);
    return false;
  }

 private:
  bool over(const char* what, size_t most) {
    status_ = invalid("{}: the JSON has more than {} {}", source_, most, what);
    return false;
  }
  bool counted() {
    if (++values_ > limits_.values) return over("values", limits_.values);
    if (values_ % kLook == 0 && limits_.stop && limits_.stop->load(std::memory_order_relaxed)) {
      status_ = error(Code::Cancelled, "{}: reading it was given up", source_);
      return false;
    }
    return true;
  }
  // Where the next value goes.
  template <typename V>
  J& place(V&& v) {
    if (path_.empty()) return root_ = J(std::forward<V>(v));
    J& parent = *path_.back();
    if (parent.is_object()) return *member_ = J(std::forward<V>(v));
    auto& list = *parent.template get_ptr<typename J::array_t*>();
    list.emplace_back(std::forward<V>(v));
    return list.back();
  }
  template <typename V>
  bool add(V&& v) {
    if (!counted()) return false;
    place(std::forward<V>(v));
    return true;
  }
  bool open(typename J::value_t kind) {
    if (!counted()) return false;
    if (++lists_ > limits_.lists) return over("arrays and objects", limits_.lists);
    path_.push_back(&place(kind));
    if (kind == J::value_t::object) objects_.emplace_back(*path_.back());
    return true;
  }

  static constexpr size_t kLook = 1024;  // values between two looks at the flag

  std::string_view source_;
  const JsonLimits& limits_;
  J root_;
  J* member_ = nullptr;        // the value of the last key
  std::vector<J*> path_;       // what is open; a container does not move while one inside of it is open
  std::list<Object> objects_;  // of the path
  size_t members_ = 0, lists_ = 0, values_ = 0;
  Status status_;
};

template <typename J, typename Object>
Result<J> parse(std::string_view text, std::string_view source, const JsonLimits& limits) {
  RETURN_IF_ERROR(check_depth(text, source));
  Builder<J, Object> builder(source, limits);
  if (!J::sax_parse(text.begin(), text.end(), &builder)) return builder.status();
  return std::move(builder.value());
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return parse<Json, MapMembers>(text, source, limits);
}

Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  return parse<OrderedJson, Members>(text, source, limits);
}

Result<Json> parse_json(std::string_view text, std::string_view source) { return parse_json(text, source, {}); }

Result<OrderedJson> parse_ordered_json(std::string_view text, std::string_view source) {
  return parse_ordered_json(text, source, {});
}

}  // namespace reprise
