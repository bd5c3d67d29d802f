// TraceParent: where a request belongs in the trace of its client, by the header `traceparent` (W3C Trace Context), and
// ids for new traces and spans, in lower-case hexadecimal digits. Plain values and functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace reprise::server {

struct TraceParent {
  std::string trace, span;  // 32 and 16 digits
  bool sampled = false;
};

// Nullopt where the header is none of that form; the trace then begins here. Of several headers none counts.
std::optional<TraceParent> parse_traceparent(std::string_view header);

std::string new_trace_id();
std::string new_span_id();

}  // namespace reprise::server
