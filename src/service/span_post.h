// Where the spans of a server go: a collector that takes OTLP over HTTP (the setting `otlp_endpoint`). What is made
// here works on the exporter's thread.
#pragma once

#include <string>

#include "server/span_exporter.h"

namespace reprise::service {

// The endpoint with its path; the error names the setting and what is allowed.
Result<std::string> otlp_url(const std::string& endpoint);

// Has the exporter send there; "": nowhere. Nothing is looked up or connected to here.
Status point_spans_to(server::SpanExporter& exporter, const std::string& endpoint);

// What a trace says of this process.
OrderedJson span_resource();

}  // namespace reprise::service
