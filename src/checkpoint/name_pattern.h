// NamePattern: the expression behind "re:" in a quantisation configuration, with the meaning of Python's re.match: it
// must match at the beginning of a module's name. RE2 does the matching, so a match takes time linear in the name,
// regardless of the pattern. Python's spelling is checked and translated first; what RE2 lacks (look-around, references
// to groups), and what Python would refuse, is an error that says where. Immutable; any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace re2 {
class RE2;
}

namespace reprise::checkpoint {

class NamePattern {
 public:
  static constexpr size_t kLongest = 1000;  // bytes of a pattern

  // The error says what is wrong and where in the pattern; the caller names the pattern and its place.
  static Result<NamePattern> compile(std::string_view python);

  bool matches(std::string_view name) const;
  // Instructions: a match costs at most so many steps for each byte of a name.
  size_t cost() const;

 private:
  std::shared_ptr<const re2::RE2> re_;
};

// Python's spelling in RE2's, for str patterns without flags from outside.
Result<std::string> re2_from_python(std::string_view python);

}  // namespace reprise::checkpoint
