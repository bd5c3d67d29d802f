#include "passes/rank_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace reprise {

int64_t count_of(const std::vector<Cut>& pieces) {
  int64_t count = 0;
  for (const Cut& piece : pieces) count += piece.count;
  return count;
}

std::string name_of(const std::vector<Cut>& pieces) {
  std::string list;
  for (const Cut& piece : pieces) list += fmt::format("{}{}+{}", list.empty() ? "" : ",", piece.first, piece.count);
  return fmt::format("[{}/{}]", list, pieces.front().of);
}

std::vector<Cut> take_pieces(std::string& name) {
  const size_t open = name.rfind('[');
  if (open == std::string::npos || name.back() != ']') return {};
  std::vector<Cut> pieces;
  const char *at = name.data() + open + 1, *end = name.data() + name.size() - 1;
  const auto take = [&](int64_t& number, char behind) {
    const auto [next, problem] = std::from_chars(at, end, number);
    const bool fine = problem == std::errc() && (behind == '\0' ? next == end : next < end && *next == behind);
    at = next + (fine && behind != '\0' ? 1 : 0);
    return fine;
  };
  for (bool more = true; more;) {
    Cut piece;
    if (!take(piece.first, '+')) return {};
    const char* count = at;
    more = take(piece.count, ',');
    if (!more) at = count;
    if (!more && !take(piece.count, '/')) return {};
    pieces.push_back(piece);
  }
  int64_t of = 0;
  if (!take(of, '\0')) return {};
  for (Cut& piece : pieces) piece.of = of;
  name.resize(open);
  return pieces;
}

Cut share_of(int64_t count, RankShare s) {
  const int64_t first = count * s.rank / s.size;
  return {first, count * (s.rank + 1) / s.size - first, count, false, count % s.size == 0};
}

Cut share_of(int64_t count, int64_t unit, RankShare s) {
  const Cut units = share_of((count + unit - 1) / unit, s);
  const int64_t first = std::min(count, units.first * unit);
  return {first, std::min(count, (units.first + units.count) * unit) - first, count, false,
          units.even && count % unit == 0};
}

// Larger units where there is plenty: kernels work on so many rows at once.
Cut share_of_columns(int64_t columns, RankShare s) {
  constexpr int64_t kPlenty = 64;  // units a rank, so that one more or less is a percent or two
  for (const int64_t unit : {int64_t{64}, int64_t{16}})
    if (columns / unit >= (unit == 64 ? kPlenty : 1) * s.size) return share_of(columns, unit, s);
  return share_of(columns, 1, s);
}

Cut share_of_heads(int64_t heads, int64_t groups, RankShare s) {
  const int64_t each = heads / groups;
  if (s.size <= groups) return share_of(groups, s).times(each);
  const int64_t ways = s.size / groups, group = s.rank / ways;
  if (each == 1) return {group, 1, heads, true};
  const Cut inside = share_of(each, {static_cast<int>(s.rank % ways), static_cast<int>(ways)});
  return {group * each + inside.first, inside.count, heads, false, inside.even};
}

void cut_parts(const std::vector<ParamPart>& parts, int64_t begin, int64_t end, std::vector<ParamPart>& out) {
  int64_t row = 0;
  for (const ParamPart& part : parts) {
    const int64_t lo = std::max(begin, row), hi = std::min(end, row + part.rows);
    if (lo < hi) {
      ParamPart mine = part;
      if (hi - lo != part.rows) {
        mine.whole = part.all_rows();
        mine.from = part.from + lo - row;
        mine.rows = hi - lo;
      }
      out.push_back(std::move(mine));
    }
    row += part.rows;
  }
}

std::vector<int64_t> allowed_ranks(int64_t heads, int64_t groups, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n <= std::min(heads, most); ++n)
    if (n <= groups || n % groups == 0) out.push_back(n);
  return out;
}

}  // namespace reprise
