#include "checkpoint/unique_json.h"

#include <set>
#include <string>
#include <vector>

namespace reprise::checkpoint {
namespace {

// Listens to the parser and stops at the first repeated key.
class DuplicateFinder : public Json::json_sax_t {
 public:
  const std::string& duplicate() const { return duplicate_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& k) override {
    if (keys_.back().insert(k).second) return true;
    duplicate_ = k;
    return false;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  std::vector<std::set<std::string>> keys_;  // ordered: keys that collide in a hash table can be made
  std::string duplicate_;
};

}  // namespace

Result<Json> parse_unique_json(std::string_view text, std::string_view source) {
  ASSIGN_OR_RETURN(Json json, parse_json(text, source));
  DuplicateFinder finder;
  if (!Json::sax_parse(text.begin(), text.end(), &finder))
    return invalid("{}: the key \"{}\" is given twice in one object", source, finder.duplicate());
  return json;
}

}  // namespace reprise::checkpoint
