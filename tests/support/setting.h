// Environment variables for a while, shared by tests.
#pragma once

#include <cstdlib>
#include <string>

namespace reprise::testing_support {

// Sets a variable that the simulator reads when it starts, for as long as this lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Setting() { unsetenv(name_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

}  // namespace reprise::testing_support
