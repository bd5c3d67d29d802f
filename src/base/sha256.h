// sha256_hex: the SHA-256 of some bytes (FIPS 180-4), in lower-case hexadecimal. Keys are kept as these, and images are
// told apart by them; files that are fetched are checked by libcrypto (hub/digest.h), which a server may not have.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace reprise {

std::string sha256_hex(std::string_view bytes);

}  // namespace reprise
