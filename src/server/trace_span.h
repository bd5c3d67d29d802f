// TraceSpan: something that took time, as a part of a trace; and the body of OTLP over HTTP that carries many of them,
// in its JSON form: ids in hexadecimal digits, 64-bit integers as text, enumerations as numbers. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"

namespace reprise::server {

enum class SpanKind : uint8_t { Internal = 1, Server = 2 };  // OTLP's numbers

struct TraceSpan {
  std::string trace, id, parent;  // parent "": the trace begins with it
  bool remote_parent = false;     // the parent is a span of another process
  std::string name;
  SpanKind kind = SpanKind::Internal;
  int64_t begin_ns = 0, end_ns = 0;                // since 1970
  OrderedJson attributes = OrderedJson::object();  // texts, numbers, truth values, lists of texts
  bool failed = false;
};

// `resource` has the attributes of who reports them.
std::string otlp_body(std::span<const TraceSpan> spans, const OrderedJson& resource);

// The version of OpenTelemetry's conventions that names and attributes follow.
std::string_view conventions_version();

}  // namespace reprise::server
