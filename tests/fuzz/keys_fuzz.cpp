// A file of keys: it is refused with words, or its keys can be looked up and charged.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/key_ring.h"

using namespace reprise::server;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto keys = KeyRing::parse({reinterpret_cast<const char*>(data), size});
  if (!keys) {
    if (keys.status().message().empty()) std::abort();
    return 0;
  }
  KeyRing ring;
  ring.replace(*keys);
  const KeyRing::Clock::time_point now{std::chrono::seconds(1)};
  for (const KeyRules& key : *keys) {
    const auto charge = ring.charge(key, 5, now);
    if (!charge.taken && (charge.retry_after_s < 1 || charge.limit.empty())) std::abort();
    ring.reconcile(key.name, charge.tokens, 0, now);
  }
  return 0;
}
