// Files of the plan cache: no input crashes the reader, and whatever it accepts is written back to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "compile/plan_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const reprise::PlanKey key{};
  static_cast<void>(reprise::decode(bytes, key).is_ok());
  // Without the checksum, which would keep nearly every input out.
  auto file = reprise::decode_payload(bytes);
  if (!file.is_ok()) return 0;
  const std::string again = reprise::encode_payload(*file);
  if (again.size() != size || std::memcmp(again.data(), data, size) != 0) std::abort();
  const std::string whole = reprise::encode(*file, key);
  if (!reprise::decode({reinterpret_cast<const uint8_t*>(whole.data()), whole.size()}, key).is_ok()) std::abort();
  return 0;
}
