#include "api/image_fetch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/lower_case.h"
#include "hub/http.h"
#include "hub/model_name.h"

namespace reprise::api {
namespace {

constexpr std::chrono::seconds kLongest{10};

Result<std::string> fetch(const std::string& url, const std::vector<std::string>& origins, int64_t most_bytes) {
  const auto end = std::chrono::steady_clock::now() + kLongest;
  hub::HubSettings plain;  // without a token
  plain.endpoint = origins.front();
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (const char* file = std::getenv(name); file && plain.certificates.empty()) plain.certificates = file;
  plain.stall_seconds = static_cast<int>(kLongest.count());
  bool late = false;
  const auto stop = [&] { return late = std::chrono::steady_clock::now() > end; };
  ASSIGN_OR_RETURN(auto session, hub::HttpSession::open(plain, stop));
  hub::HttpRequest request;
  request.url = url;
  request.only = &origins;
  request.most_bytes = static_cast<size_t>(most_bytes);
  request.most_bytes_by = " (`max_image_bytes`)";
  auto answer = session.run(request);
  if (late) return invalid("{}: it took more than {} s", hub::printable(url.substr(0, 100)), kLongest.count());
  if (!answer) return answer.status();
  if (answer->status != 200) return invalid("{} answered {}", answer->host, answer->status);
  return std::move(answer->body);
}

}  // namespace

Result<ImageFetch> image_fetch(const std::string& hosts, int64_t most_bytes) {
  std::vector<std::string> origins;
  for (size_t at = 0; at < hosts.size();) {
    const size_t comma = std::min(hosts.find(',', at), hosts.size());
    std::string one = hosts.substr(at, comma - at);
    at = comma + 1;
    if (one.empty()) continue;
    if (one.find("://") == std::string::npos) one = "https://" + one;
    // As the origins of URLs are compared: small letters, no usual port.
    one = lower_case(one);
    for (const auto& [scheme, port] : {std::pair("https://", ":443"), std::pair("http://", ":80")})
      if (one.starts_with(scheme) && one.ends_with(port)) one.resize(one.rfind(':'));
    const std::string host = one.substr(one.find("://") + 3);
    if ((!one.starts_with("https://") && !one.starts_with("http://")) || host.empty() ||
        host.find_first_of("/*?#@ ") != std::string::npos)
      return invalid("`allowed_image_hosts` {}: allowed: NAME, NAME:PORT, http://NAME", hub::printable(one));
    origins.push_back(std::move(one));
  }
  if (origins.empty()) return ImageFetch();
  return ImageFetch([origins, most_bytes](const std::string& url) { return fetch(url, origins, most_bytes); });
}

}  // namespace reprise::api
