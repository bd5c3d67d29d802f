// A file of settings, and a variable of the environment: it is refused with words that name it, or every value is one
// that its row allows.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "settings/config_file.h"
#include "settings/environment.h"
#include "settings/values.h"

using namespace reprise::settings;

namespace {

// The same text as a variable of the environment.
void read_variable(std::string_view text) {
  const std::string variable = "REPRISE_SET_" + std::string(text.substr(0, text.find('\0')));
  const char* const environment[] = {variable.c_str(), nullptr};
  const auto variables = variables_of(environment);
  if (!variables && variables.status().message().find("REPRISE_SET_") == std::string::npos) std::abort();
  if (!variables || variables->empty()) return;
  const auto values = values_of(variables->front());
  if (!values && values.status().message().find(variables->front().name) == std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read_variable({reinterpret_cast<const char*>(data), size});
  std::vector<std::string> includes;
  const auto values = parse_config({reinterpret_cast<const char*>(data), size}, "server.json", includes);
  if (!values) {
    if (values.status().message().find("server.json") == std::string::npos) std::abort();
    return 0;
  }
  for (const FileValue& v : *values) {
    const Setting* s = find(v.key);
    if (!s) std::abort();
    for (const std::string& one : v.values)
      if (!check(*s, one).is_ok()) std::abort();
  }
  return 0;
}
