#include "server/trace_parent.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/ids.h"

namespace reprise::server {
namespace {

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

uint64_t random_but_zero() {
  for (;;)
    if (const uint64_t bits = random_bits(); bits != 0) return bits;
}

}  // namespace

// "VERSION-TRACE-PARENT-FLAGS". A later version may go on behind the flags, after a dash; what precedes is read by the
// rules of version 00 (section 3.2.4 of the recommendation). Version ff is no version.
std::optional<TraceParent> parse_traceparent(std::string_view header) {
  constexpr size_t kSize = 55, kTrace = 3, kSpan = 36, kFlags = 53;
  if (header.size() < kSize) return std::nullopt;
  for (const size_t dash : {kTrace - 1, kSpan - 1, kFlags - 1})
    if (header[dash] != '-') return std::nullopt;
  const std::string_view version = header.substr(0, 2), trace = header.substr(kTrace, 32),
                         span = header.substr(kSpan, 16), flags = header.substr(kFlags, 2);
  for (const std::string_view part : {version, trace, span, flags})
    if (!is_hex(part)) return std::nullopt;
  if (version == "ff" || is_zero(trace) || is_zero(span)) return std::nullopt;
  if (header.size() > kSize && (version == "00" || header[kSize] != '-')) return std::nullopt;
  const char last = flags[1];
  const int bits = last <= '9' ? last - '0' : last - 'a' + 10;
  return TraceParent{std::string(trace), std::string(span), (bits & 1) != 0};
}

std::string new_trace_id() { return fmt::format("{:016x}{:016x}", random_but_zero(), random_but_zero()); }
std::string new_span_id() { return fmt::format("{:016x}", random_but_zero()); }

}  // namespace reprise::server
