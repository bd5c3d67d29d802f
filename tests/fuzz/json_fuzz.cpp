// The bounded JSON parser: any bytes give a value or an error; what parsed prints and parses again to the same value.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto parsed = reprise::parse_json(text, "input");
  if (!parsed.is_ok()) return 0;
  const std::string printed = parsed->dump();
  auto again = reprise::parse_json(printed, "printed");
  if (!again.is_ok() || again->dump() != printed) std::abort();
  return 0;
}
