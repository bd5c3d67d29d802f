#include "engine/graph_sizes.h"

#include <algorithm>
#include <charconv>

namespace reprise::engine {
namespace {

void add(std::vector<int64_t>& out, int64_t first, int64_t last, int64_t step) {
  for (int64_t n = first; n <= last; n += step) out.push_back(n);
}

std::vector<int64_t> with_largest(std::vector<int64_t> sizes, int64_t largest) {
  if (largest > 0 && (sizes.empty() || sizes.back() < largest)) sizes.push_back(largest);
  return sizes;
}

}  // namespace

std::vector<int64_t> decode_sizes_by_rule(int64_t largest, SizeRule rule) {
  std::vector<int64_t> out;
  switch (rule) {
    case SizeRule::Padded:
      out = {1, 2, 4, 8, 12};
      add(out, 16, 256, 8);
      add(out, 272, 511, 16);
      add(out, 512, largest, 32);
      break;
    case SizeRule::Exact: add(out, 1, largest, 1); break;
    case SizeRule::Speculative:
      add(out, 1, 8, 1);
      add(out, 10, 32, 2);
      add(out, 40, 64, 4);
      add(out, 72, 256, 8);
      add(out, 272, largest, 16);
      break;
  }
  std::erase_if(out, [&](int64_t n) { return n > largest; });
  return out;
}

std::vector<int64_t> decode_sizes(int64_t largest, SizeRule rule) {
  return with_largest(decode_sizes_by_rule(largest, rule), largest);
}

std::vector<int64_t> prefill_sizes_by_rule(int64_t largest) {
  std::vector<int64_t> out;
  add(out, 4, 32, 4);
  add(out, 48, 256, 16);
  add(out, 288, 512, 32);
  add(out, 640, 4096, 128);
  add(out, 4352, largest, 256);
  std::erase_if(out, [&](int64_t n) { return n > largest; });
  return out;
}

std::vector<int64_t> prefill_sizes(int64_t largest) { return with_largest(prefill_sizes_by_rule(largest), largest); }

std::vector<int64_t> verify_sizes(const VerifyRows& rows, int64_t largest_batch, const std::vector<int64_t>& given,
                                  bool padding) {
  std::vector<int64_t> out;
  if (rows.each < 2) return out;
  const int64_t most = rows.most > 0 ? rows.most : rows.each * largest_batch;
  for (const int64_t width : {int64_t{2}, int64_t{4}, rows.each}) {
    if (width > rows.each || (width != rows.each && !rows.adaptive)) continue;
    const int64_t batch = std::min(largest_batch, most / width);
    const auto batches = given.empty() ? decode_sizes(batch, padding ? SizeRule::Speculative : SizeRule::Exact) : given;
    for (const int64_t n : batches)
      if (n <= batch) out.push_back(n * width);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<int64_t>> parse_sizes(std::string_view flag, std::string_view list, int64_t limit) {
  std::vector<int64_t> out;
  std::string_view rest = list;
  while (true) {
    const auto comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    int64_t n = 0;
    auto [end, ec] = std::from_chars(item.data(), item.data() + item.size(), n);
    if (ec != std::errc() || end != item.data() + item.size() || n < 1 || n > limit)
      return invalid("{} \"{}\": \"{}\" is not a size; allowed: a comma list of numbers from 1 to {}", flag, list, item,
                     limit);
    out.push_back(n);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<int64_t> spread_sizes(const std::vector<int64_t>& sizes, size_t count) {
  if (count >= sizes.size()) return sizes;
  if (count <= 1) return count == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{sizes.back()};
  std::vector<int64_t> out;
  for (size_t i = 0; i < count; ++i) out.push_back(sizes[i * (sizes.size() - 1) / (count - 1)]);
  return out;
}

std::optional<int64_t> choose_size(const std::vector<int64_t>& sizes, int64_t n) {
  auto it = std::lower_bound(sizes.begin(), sizes.end(), n);
  if (it == sizes.end()) return std::nullopt;
  return *it;
}

}  // namespace reprise::engine
