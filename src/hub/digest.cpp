#include "hub/digest.h"

#include <openssl/evp.h>

#include "hub/library.h"

namespace reprise::hub {
namespace {

struct Crypto {
  decltype(EVP_MD_CTX_new)* make = nullptr;
  decltype(EVP_MD_CTX_free)* free = nullptr;
  decltype(EVP_DigestInit_ex)* init = nullptr;
  decltype(EVP_DigestUpdate)* update = nullptr;
  decltype(EVP_DigestFinal_ex)* finish = nullptr;
  decltype(EVP_sha256)* sha256 = nullptr;
  decltype(EVP_sha1)* sha1 = nullptr;

  static Result<Crypto> open() {
    ASSIGN_OR_RETURN(const SharedLibrary library,
                     SharedLibrary::open({"libcrypto.so.3", "libcrypto.so.1.1"}, "checks what is fetched", "libssl3"));
    Crypto c;
    RETURN_IF_ERROR(library.find("EVP_MD_CTX_new", c.make));
    RETURN_IF_ERROR(library.find("EVP_MD_CTX_free", c.free));
    RETURN_IF_ERROR(library.find("EVP_DigestInit_ex", c.init));
    RETURN_IF_ERROR(library.find("EVP_DigestUpdate", c.update));
    RETURN_IF_ERROR(library.find("EVP_DigestFinal_ex", c.finish));
    RETURN_IF_ERROR(library.find("EVP_sha256", c.sha256));
    RETURN_IF_ERROR(library.find("EVP_sha1", c.sha1));
    return c;
  }
};

const Result<Crypto>& crypto() {
  static const Result<Crypto> opened = Crypto::open();
  return opened;
}

}  // namespace

void Digest::Free::operator()(void* context) const { crypto()->free(static_cast<EVP_MD_CTX*>(context)); }

Result<Digest> Digest::make(Kind kind) {
  if (!crypto()) return crypto().status();
  const Crypto& c = *crypto();
  Digest d;
  EVP_MD_CTX* context = c.make();
  d.context_.reset(context);
  if (!context || c.init(context, kind == Kind::Sha256 ? c.sha256() : c.sha1(), nullptr) != 1)
    return error(Code::Unsupported, "libcrypto refuses {}", kind == Kind::Sha256 ? "SHA-256" : "SHA-1");
  return d;
}

Result<Digest> Digest::git_blob(uint64_t size) {
  ASSIGN_OR_RETURN(Digest d, make(Kind::Sha1));
  const std::string head = fmt::format("blob {}", size);
  d.add({head.c_str(), head.size() + 1});  // with its zero
  return d;
}

void Digest::add(std::string_view bytes) {
  const int done = crypto()->update(static_cast<EVP_MD_CTX*>(context_.get()), bytes.data(), bytes.size());
  CHECK(done == 1, "a digest takes any bytes");
}

std::string Digest::hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const int done = crypto()->finish(static_cast<EVP_MD_CTX*>(context_.get()), bytes, &size);
  CHECK(done == 1, "a digest ends once");
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

}  // namespace reprise::hub
