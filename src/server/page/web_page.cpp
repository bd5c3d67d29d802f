#include "server/page/web_page.h"

#include <fmt/format.h>

#include <string_view>

#include "base/entropy.h"

namespace reprise::server {

// In files that CMake makes.
extern const unsigned char kLivePageBytes[], kDocsPageBytes[];
extern const size_t kLivePageSize, kDocsPageSize;

namespace {

WebPage with_marks(const unsigned char* bytes, size_t size) {
  const std::string nonce = fmt::format("{:016x}{:016x}", entropy(), entropy());
  constexpr std::string_view kMark = "{{nonce}}";
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  WebPage page;
  page.html.reserve(rest.size() + 8 * nonce.size());
  for (size_t at; (at = rest.find(kMark)) != std::string_view::npos; rest.remove_prefix(at + kMark.size()))
    page.html.append(rest.substr(0, at)).append(nonce);
  page.html += rest;
  page.headers = {
      {"content-security-policy",
       fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; img-src data:; connect-src "
                   "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                   nonce)},
      {"x-content-type-options", "nosniff"},
      {"referrer-policy", "no-referrer"},
      {"cache-control", "no-store"}};
  return page;
}

}  // namespace

WebPage live_page() { return with_marks(kLivePageBytes, kLivePageSize); }
WebPage docs_page() { return with_marks(kDocsPageBytes, kDocsPageSize); }

}  // namespace reprise::server
