#include "server/trace_span.h"

#include "server/fields.h"

namespace reprise::server {
namespace {

// The last release that has the conventions for generative AI; the repository they went to has no release yet.
constexpr std::string_view kConventions = "1.41.1";

OrderedJson value_of(const OrderedJson& v) {
  if (v.is_boolean()) return {{"boolValue", v}};
  if (v.is_number_integer()) return {{"intValue", std::to_string(v.get<int64_t>())}};
  if (v.is_number()) return {{"doubleValue", v}};
  if (!v.is_array()) return {{"stringValue", v}};
  OrderedJson values = OrderedJson::array();
  for (const OrderedJson& one : v) values.push_back(value_of(one));
  return {{"arrayValue", {{"values", std::move(values)}}}};
}

OrderedJson attributes_of(const OrderedJson& object) {
  OrderedJson out = OrderedJson::array();
  for (const auto& [key, value] : object.items()) out.push_back({{"key", key}, {"value", value_of(value)}});
  return out;
}

// Bit 0: sampled. Bit 8: bit 9 is told, which says that the parent is of another process.
int flags_of(const TraceSpan& s) {
  constexpr int kSampled = 1, kTold = 1 << 8, kRemote = 1 << 9;
  return kSampled | kTold | (s.remote_parent ? kRemote : 0);
}

OrderedJson json_of(const TraceSpan& s) {
  OrderedJson out = {{"traceId", s.trace}, {"spanId", s.id}};
  if (!s.parent.empty()) out["parentSpanId"] = s.parent;
  out["flags"] = flags_of(s);
  out["name"] = s.name;
  out["kind"] = static_cast<int>(s.kind);
  out["startTimeUnixNano"] = std::to_string(s.begin_ns);
  out["endTimeUnixNano"] = std::to_string(s.end_ns);
  out["attributes"] = attributes_of(s.attributes);
  if (s.failed) out["status"] = {{"code", 2}};
  return out;
}

}  // namespace

std::string otlp_body(std::span<const TraceSpan> spans, const OrderedJson& resource) {
  OrderedJson list = OrderedJson::array();
  for (const TraceSpan& s : spans) list.push_back(json_of(s));
  OrderedJson scope = {{"name", "reprise"},
                       {"attributes", attributes_of({{"reprise.conventions.version", kConventions}})}};
  const std::string schema = "https://opentelemetry.io/schemas/" + std::string(kConventions);
  OrderedJson scoped = {{"scope", std::move(scope)}, {"spans", std::move(list)}, {"schemaUrl", schema}};
  OrderedJson of_resource = {{"resource", {{"attributes", attributes_of(resource)}}},
                             {"scopeSpans", OrderedJson::array({std::move(scoped)})}};
  return dumped({{"resourceSpans", OrderedJson::array({std::move(of_resource)})}});
}

std::string_view conventions_version() { return kConventions; }

}  // namespace reprise::server
