// Digest: SHA-256 or SHA-1 of bytes as they come, by OpenSSL's libcrypto (library.h). Owns its state; one thread at a
// time. Hubs name large files by the SHA-256 of their bytes, and small ones as git does: git_blob().
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace reprise::hub {

class Digest {
 public:
  enum class Kind : uint8_t { Sha256, Sha1 };
  static Result<Digest> make(Kind kind);
  // SHA-1 that has seen what git puts in front of a file of this size.
  static Result<Digest> git_blob(uint64_t size);

  void add(std::string_view bytes);
  std::string hex();  // once, at the end

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace reprise::hub
