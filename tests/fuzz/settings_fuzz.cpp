// A file of settings: it is refused with words that name it, or every value is one that its row allows.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "settings/config_file.h"
#include "settings/values.h"

using namespace reprise::settings;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
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
  if (!changed(*values, *values).empty()) std::abort();
  return 0;
}
