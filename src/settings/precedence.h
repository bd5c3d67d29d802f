// Precedence: what was given to each setting of a command and by whom; the highest origin is in effect. A plain value:
// it holds no targets, so that a server can compare the settings that it runs with with those of a file read later.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::settings {

// From the lowest to the highest.
enum class Origin : uint8_t { Default, Device, Model, File, Environment, Flag, Api };
std::string_view name_of(Origin origin);

struct Given {
  Origin origin = Origin::Default;
  std::vector<std::string> values;  // one, or the elements of a list
  std::string place = {};           // the file

  bool operator==(const Given& other) const { return values == other.values; }
};

class Precedence {
 public:
  // Replaces what the same origin gave before.
  void give(std::string_view key, Given given);
  // Forgets all that the origin gave.
  void drop(Origin origin);
  // Null where nothing was given.
  const Given* in_effect(std::string_view key) const;
  // From the highest to the lowest.
  std::vector<Given> all_of(std::string_view key) const;
  // Every key for which something was given, in the order of the alphabet.
  std::vector<std::string> keys() const;
  // Whether both have the same values in effect for the key.
  bool agrees(const Precedence& other, std::string_view key) const;
  // What was given for the key becomes that of the other.
  void take(std::string_view key, const Precedence& other);

 private:
  std::map<std::string, std::map<Origin, Given>, std::less<>> given_;
};

}  // namespace reprise::settings
