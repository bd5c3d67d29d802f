#include "nn/param_name.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace reprise::nn {
namespace {

// Takes a number off the front.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (problem != std::errc() || n < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return n;
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

// "a.{0..7}.b"
std::optional<ParamName> parse_stack(const std::string& name) {
  const size_t open = name.find('{');
  if (open == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(open + 1);
  const auto first = take_number(rest);
  if (!first || !take(rest, "..")) return std::nullopt;
  const auto last = take_number(rest);
  if (!last || *last < *first || !take(rest, "}")) return std::nullopt;
  ParamName out;
  out.tensor = name.substr(0, open) + "{}" + std::string(rest);
  out.from = *first;
  out.to = *last + 1;
  return out;
}

// "a@0+128/192T"
std::optional<ParamName> parse_rows(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(at + 1);
  const auto first = take_number(rest);
  if (!first || !take(rest, "+")) return std::nullopt;
  const auto rows = take_number(rest);
  if (!rows || !take(rest, "/")) return std::nullopt;
  const auto of = take_number(rest);
  if (!of || *rows == 0 || *of < *rows || *first > *of - *rows) return std::nullopt;
  ParamName out;
  out.tensor = name.substr(0, at);
  out.first = *first;
  out.rows = *rows;
  out.of = *of;
  out.transposed = take(rest, "T");
  if (!rest.empty()) return std::nullopt;
  return out;
}

}  // namespace

std::string ParamName::tensor_of(int64_t number) const {
  const size_t at = tensor.find("{}");
  if (at == std::string::npos) return tensor;
  return tensor.substr(0, at) + std::to_string(number) + tensor.substr(at + 2);
}

std::string ParamName::text() const {
  if (of > 0) return fmt::format("{}@{}+{}/{}{}", tensor, first, rows, of, transposed ? "T" : "");
  const size_t at = tensor.find("{}");
  if (at == std::string::npos) return tensor;
  return fmt::format("{}{{{}..{}}}{}", tensor.substr(0, at), from, to - 1, tensor.substr(at + 2));
}

ParamName parse_param_name(const std::string& name) {
  if (auto stack = parse_stack(name)) return *stack;
  if (auto rows = parse_rows(name)) return *rows;
  ParamName plain;
  plain.tensor = name;
  return plain;
}

}  // namespace reprise::nn
