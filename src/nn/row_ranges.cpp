#include "nn/row_ranges.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "nn/param_name.h"

namespace reprise::nn {
namespace {

// A number and the character behind it, both taken off the front.
std::optional<std::pair<int64_t, char>> take_count(std::string_view& text) {
  int64_t n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (problem != std::errc() || n < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  const char next = text.empty() ? '\0' : text.front();
  if (!text.empty()) text.remove_prefix(1);
  return std::pair(n, next);
}

}  // namespace

std::string RowRanges::text() const {
  std::string list;
  for (const RowRange& r : ranges) list += fmt::format("{}{}+{}", list.empty() ? "" : ",", r.first, r.rows);
  return fmt::format("{}@{}/{}", tensor, list, of);
}

std::optional<RowRanges> parse_row_ranges(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(at + 1);
  RowRanges out;
  out.tensor = name.substr(0, at);
  for (char next = ','; next == ',';) {
    const auto first = take_count(rest);
    if (!first || first->second != '+') return std::nullopt;
    const auto rows = take_count(rest);
    if (!rows || (rows->second != ',' && rows->second != '/')) return std::nullopt;
    out.ranges.push_back({first->first, rows->first});
    next = rows->second;
  }
  const auto of = take_count(rest);
  if (!of || of->second != '\0' || out.ranges.size() < 2) return std::nullopt;
  out.of = of->first;
  for (const RowRange& r : out.ranges)
    if (r.rows == 0 || r.rows > out.of || r.first > out.of - r.rows) return std::nullopt;
  return out;
}

std::string tensor_of_param(const std::string& name) {
  if (const auto ranges = parse_row_ranges(name)) return ranges->tensor;
  return parse_param_name(name).tensor;
}

}  // namespace reprise::nn
