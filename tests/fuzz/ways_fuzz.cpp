// Files of chosen products: no input crashes the reader, and whatever it accepts is written back to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "device/product_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const reprise::ProductWaysKey key{130100, "sm_90", 132, 1};
  static_cast<void>(reprise::decode_ways(bytes, key).is_ok());
  // Without the checksum, which would keep nearly every input out.
  const auto ways = reprise::decode_ways_payload(bytes);
  if (!ways.is_ok()) return 0;
  const std::string again = reprise::encode_ways_payload(*ways);
  if (again.size() != size || std::memcmp(again.data(), data, size) != 0) std::abort();
  const std::string whole = reprise::encode_ways(*ways, key);
  if (!reprise::decode_ways({reinterpret_cast<const uint8_t*>(whole.data()), whole.size()}, key).is_ok()) std::abort();
  return 0;
}
