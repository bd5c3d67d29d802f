#include "service/span_post.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/log.h"
#include "client/http_calls.h"
#include "server/request_reader.h"
#include "server/trace_parent.h"

namespace reprise::service {
namespace {

// One connection that is kept; after a failure the host is looked up anew.
class SpanPost {
 public:
  explicit SpanPost(std::string url) : url_(std::move(url)) {}

  server::SpanExporter::Answer operator()(const std::string& body, std::chrono::milliseconds limit) {
    if (!calls_) {
      auto opened = client::HttpCalls::open(url_, {});
      if (!opened) return {0, opened.status().message(), "", {}};
      calls_ = std::move(*opened);
    }
    const auto answer = calls_->fetch({"POST", "", body}, limit);
    if (answer)
      return {answer->status, "", answer->body,
              server::retry_after_of(answer->retry_after, std::chrono::system_clock::now())};
    calls_ = nullptr;
    return {0, answer.status().message(), "", {}};
  }

 private:
  const std::string url_;
  std::shared_ptr<client::HttpCalls> calls_;
};

// "a=b,c=d", with percent escapes in the values; nullopt where it is not of that form.
std::optional<OrderedJson> attributes_of(std::string_view text) {
  OrderedJson out = OrderedJson::object();
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const size_t is = pair.find('=');
    if (is == std::string_view::npos || is == 0) return std::nullopt;
    out[std::string(pair.substr(0, is))] = server::percent_decoded(pair.substr(is + 1));
  }
  return out;
}

}  // namespace

Result<std::string> otlp_url(const std::string& endpoint) {
  if (endpoint.starts_with("https://"))
    return invalid(
        "`otlp_endpoint` {}: this server does not speak TLS; a collector or a proxy beside it takes http:// and sends "
        "on by https://",
        endpoint);
  auto place = client::parse_http_place(endpoint);
  if (!place) return place.status().at("`otlp_endpoint`");
  return fmt::format("http://{}{}", place->authority, place->prefix.empty() ? "/v1/traces" : place->prefix);
}

Status point_spans_to(server::SpanExporter& exporter, const std::string& endpoint) {
  if (endpoint.empty()) {
    exporter.point_to("", nullptr);
    return Status::ok();
  }
  ASSIGN_OR_RETURN(const std::string url, otlp_url(endpoint));
  auto post = std::make_shared<SpanPost>(url);
  exporter.point_to(url,
                    [post](const std::string& body, std::chrono::milliseconds limit) { return (*post)(body, limit); });
  return Status::ok();
}

// The two variables are OpenTelemetry's own, which operators of clusters set for every process.
OrderedJson span_resource() {
  OrderedJson out = {{"service.name", "reprise"},
                     {"service.version", REPRISE_VERSION},
                     {"service.instance.id", server::new_trace_id()}};
  const char *more = std::getenv("OTEL_RESOURCE_ATTRIBUTES"), *name = std::getenv("OTEL_SERVICE_NAME");
  if (more) {
    if (const auto given = attributes_of(more))
      out.update(*given);
    else
      log::warning("OTEL_RESOURCE_ATTRIBUTES is left out: NAME=VALUE,... is expected");
  }
  if (name && *name) out["service.name"] = name;
  return out;
}

}  // namespace reprise::service
