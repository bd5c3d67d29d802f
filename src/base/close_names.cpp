#include "base/close_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace reprise {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string close_names(std::string_view name, std::span<const std::string_view> known) {
  constexpr size_t kMaxName = 200;  // the table is quadratic in the length; longer names are not misspellings
  if (name.empty() || name.size() > kMaxName) return "";
  std::vector<std::pair<size_t, std::string_view>> near;
  for (std::string_view k : known) {
    if (k.empty() || k.size() > kMaxName) continue;
    size_t d = edit_distance(name, k);
    if (k.find(name) != std::string_view::npos || name.find(k) != std::string_view::npos) d = std::min<size_t>(d, 2);
    if (d <= std::max<size_t>(2, name.size() / 4)) near.emplace_back(d, k);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(3, near.size()); ++i)
    out += fmt::format("{}{}", i == 0 ? "; close names: " : ", ", near[i].second);
  return out;
}

}  // namespace reprise
