// The workspace of attention, by the vendor's formulas of August 2026 (ops-transformer: fia_tiling_nonquant.cpp,
// fia_tiling_nonquant_mla.cpp, split_core.cpp, fused_infer_attention_score_tiling.cpp, flash_attention_infer_tiling.h).
//
// It does not grow with the lengths. One part depends on shapes; another, for partial results, is added only where the
// balancing of the cores cuts a row of keys, which short or unequal lengths may cause and long equal ones may not. The
// sources of 2025 have other formulas with the same kind of switch; these stand for all versions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ascend/ops/attention.h"

namespace ascend_sim {

namespace {

constexpr uint64_t kLibraryBytes = uint64_t{16} << 20;

int64_t aligned_to(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
int64_t parts_of(int64_t value, int64_t by) { return (value + by - 1) / by; }

struct Sizes {
  int64_t group = 1, longest = 0, keys = 0;  // heads per key head, query tokens and keys of a request
};

Sizes sizes_of(const Operator& op, const Attention& a) {
  Sizes s;
  s.group = a.heads / a.kv_heads;
  s.longest = a.joined() ? 0 : a.rows;
  s.keys = a.pages == Pages::None ? a.kv_rows : op[a.table].dim(1) * a.page;
  for (const Request& request : a.requests) {
    if (a.joined()) s.longest = std::max(s.longest, request.length);
    if (a.pages == Pages::None) s.keys = std::max(s.keys, request.kv_length);
  }
  if (s.keys == 0) s.keys = 1024;
  return s;
}

// A stretch of query rows of one key head: `blocks` blocks of keys, of which the last may be shorter.
struct Stretch {
  int64_t blocks = 0, normal = 0, last = 0;
  int64_t cost() const { return blocks == 0 ? 0 : (blocks - 1) * normal + last; }
};

int64_t block_cost(int64_t rows, int64_t keys) { return 6 * parts_of(rows, 16) + 10 * parts_of(keys, 64); }

// All stretches, those of one key head of one request together.
struct Load {
  std::vector<Stretch> stretches;
  std::vector<size_t> heads;  // the first of each head, and one past the last
  int64_t cost = 0, blocks = 0;
};

Load load_of(const Attention& a, const Sizes& s, int64_t row_size, int64_t key_size) {
  Load load;
  for (const Request& request : a.requests) {
    std::vector<Stretch> one;
    const int64_t rows = request.kv_length == 0 ? 0 : request.length * s.group;
    for (int64_t from = 0; from < rows; from += row_size) {
      const int64_t size = std::min(row_size, rows - from);
      const int64_t end = std::max<int64_t>(0, a.limit(request, (from + size - 1) / s.group));
      const int64_t last = parts_of(end, key_size);
      Stretch stretch;
      stretch.blocks = std::max<int64_t>(0, last - a.begin(request, from / s.group) / key_size);
      // Only the end of the keys is a shorter block; where the mask ends, a whole one counts.
      const bool cut = last == parts_of(request.kv_length, key_size) && request.kv_length % key_size != 0;
      stretch.normal = block_cost(size, key_size);
      stretch.last = cut ? block_cost(size, request.kv_length % key_size) : stretch.normal;
      one.push_back(stretch);
    }
    for (int64_t head = 0; head < a.kv_heads; ++head) {
      load.heads.push_back(load.stretches.size());
      load.stretches.insert(load.stretches.end(), one.begin(), one.end());
      for (const Stretch& stretch : one) load.cost += stretch.cost(), load.blocks += stretch.blocks;
    }
  }
  load.heads.push_back(load.stretches.size());
  return load;
}

struct Balance {
  int64_t highest = 0;  // cost of a core
  bool cuts = false;    // a stretch is shared by cores
};

// Fills one core after the other with whole heads, then whole stretches, then blocks, each while half of the last
// block's cost is the most that it is too much; at least one block a core. Stops where `best` is not reached.
Balance balance(const Load& load, int64_t cores, int64_t best) {
  Balance found;
  size_t head = 0, at = 0;
  int64_t taken = 0, left = load.cost;
  const size_t heads = load.heads.size() - 1;
  const auto rest = [&](size_t i) {
    const Stretch& one = load.stretches[i];
    return one.cost() - (i == at ? taken * one.normal : 0);
  };
  for (int64_t core = 0; core < cores && head < heads && left > 0 && found.highest <= best; ++core) {
    const int64_t limit = left / (cores - core);
    int64_t used = 0;
    const auto fits = [&](int64_t cost, int64_t last) { return limit + last / 2 >= used + cost; };
    for (; head < heads; ++head, taken = 0) {
      const size_t end = load.heads[head + 1];
      at = std::max(at, load.heads[head]);
      int64_t cost = 0;
      for (size_t i = at; i < end; ++i) cost += rest(i);
      if (cost > 0 && !fits(cost, load.stretches[end - 1].last)) break;
      used += cost, at = end;
    }
    if (head < heads) {
      const size_t end = load.heads[head + 1];
      for (; at + 1 < end && fits(rest(at), load.stretches[at].last); ++at, taken = 0) used += rest(at);
      const Stretch& one = load.stretches[at];
      const int64_t cost = taken + 1 == one.blocks ? one.last : one.normal;
      while (taken < one.blocks && (used == 0 || fits(cost, cost))) used += cost, ++taken;
      found.cuts |= taken > 0 && taken < one.blocks;
      if (taken == one.blocks) ++at, taken = 0;
    }
    found.highest = std::max(found.highest, used);
    left -= used;
  }
  return found;
}

bool cuts_keys(const Load& load) {
  if (load.blocks == 0) return false;
  const int64_t most = std::min<int64_t>(machine().cube_cores, load.blocks);
  const auto least = static_cast<int64_t>(std::sqrt(static_cast<double>(load.blocks) + 0.25) + 0.5);
  Balance best{std::numeric_limits<int64_t>::max(), false};
  for (int64_t cores = std::min(least, most); cores <= most; ++cores) {
    const Balance one = balance(load, cores, best.highest);
    if (one.highest < best.highest) best = one;
  }
  return best.cuts;
}

// Both products in fp32 and the weights between them in 16 bits, twice for each core.
uint64_t products_bytes(int64_t rows, int64_t keys, int64_t width) {
  return static_cast<uint64_t>(2 * machine().cube_cores * rows * (keys * 6 + width * 8));
}

// Two partial results for each core, with their sums and maxima of 32 bytes.
uint64_t partial_bytes(int64_t rows, int64_t width) {
  return static_cast<uint64_t>(machine().cube_cores * 2 * rows * (width + 16)) * sizeof(float);
}

// Pages must divide what is taken at once.
int64_t whole_pages(const Attention& a, int64_t keys) {
  const bool uneven = a.pages != Pages::None && keys > a.page && keys % a.page != 0;
  return uneven ? keys / a.page * a.page : keys;
}

uint64_t general_bytes(const Operator& op, const Attention& a, bool bound) {
  const int64_t width = aligned_to(a.width, 32);
  if (bound) return kLibraryBytes + products_bytes(512, 512, width) + partial_bytes(512, width);
  const Sizes s = sizes_of(op, a);
  const bool few = !a.joined() && s.longest <= 16;
  int64_t keys = 512;
  if (few) keys = s.group < 5 ? 8192 : s.group < 10 ? 4096 : 2048;
  if (a.masks == MaskKind::Shared) keys = std::min<int64_t>(keys, 1024);
  keys = std::min(whole_pages(a, keys), s.keys);
  const int64_t lines = aligned_to(keys, 32);
  int64_t rows = 512;
  if (few) rows = lines <= 512 ? 512 : lines <= 1024 ? 256 : lines <= 2048 ? 128 : lines <= 4096 ? 64 : 32;
  uint64_t bytes = kLibraryBytes + products_bytes(std::min(s.group * s.longest, rows), lines, width);
  if (cuts_keys(load_of(a, s, rows, keys))) bytes += partial_bytes(rows, width);
  return bytes;
}

uint64_t latent_bytes(const Operator& op, const Attention& a, bool bound) {
  const int64_t width = aligned_to(a.width, 32), cores = machine().cube_cores;
  int64_t rows = 256;
  const auto lines_bytes = [&] { return static_cast<uint64_t>(2 * cores * rows * 8); };
  if (bound) return kLibraryBytes + products_bytes(rows, 512, width) + lines_bytes() + partial_bytes(rows, width);
  const Sizes s = sizes_of(op, a);
  const int64_t keys = std::min(whole_pages(a, 512), s.keys);
  const auto tasks = static_cast<int64_t>(a.requests.size());  // of one key head each
  const bool same = std::all_of(a.requests.begin(), a.requests.end(),
                                [&](const Request& request) { return request.kv_length == a.requests[0].kv_length; });
  // Equal lengths that do not divide evenly: smaller stretches of rows may save the cut.
  if (tasks > 0 && tasks % cores != 0 && same) {
    const int64_t pieces = std::lcm(tasks, cores) / tasks, all = s.longest * s.group;
    if (all % pieces == 0 && all / pieces >= 128 && all / pieces <= rows) rows = all / pieces;
  }
  const int64_t used = aligned_to(std::min(s.group * s.longest, rows), 16);
  uint64_t bytes = kLibraryBytes + products_bytes(used, aligned_to(keys, 32), width) + lines_bytes();
  if (cuts_keys(load_of(a, s, rows, keys))) bytes += partial_bytes(rows, width);
  return bytes;
}

// What the cores leave of the rows they share: each takes blocks of 512 keys until its share is used up.
uint64_t shared_bytes(const Attention& a, int64_t group) {
  const int64_t cores = machine().cube_cores;
  int64_t all = 0;
  for (const Request& request : a.requests) all += a.heads * request.length * request.kv_length;
  const int64_t share = parts_of(all, cores);
  uint64_t floats = 0;
  int64_t left = share;
  for (const Request& request : a.requests) {
    const int64_t tile = std::clamp<int64_t>(128 / request.length / 2 * 2, 1, group);
    for (int64_t head = 0; head < a.kv_heads * group; head += std::min(tile, group - head % group)) {
      const int64_t heads = std::min(tile, group - head % group);
      int64_t pieces = 1;
      for (int64_t key = 0; key < request.kv_length; key += 512) {
        if (left <= 0) {  // the next core's
          left = share;
          if (key > 0) ++pieces;
        }
        left -= request.length * tile * std::min<int64_t>(512, request.kv_length - key);
      }
      if (pieces > 1) floats += static_cast<uint64_t>(pieces * heads * request.length * (a.width + 1));
    }
  }
  return floats * sizeof(float);
}

uint64_t joined_bytes(const Operator& op, const Attention& a, bool bound) {
  const auto cores = static_cast<uint64_t>(machine().cube_cores);
  const uint64_t fixed = kLibraryBytes + cores * 128 * 512 * 48;
  if (bound) return fixed + 2 * cores * 128 * static_cast<uint64_t>((a.width + 1) * a.heads) * sizeof(float);
  const Sizes s = sizes_of(op, a);
  int64_t most_keys = 0, least = s.longest;
  for (const Request& request : a.requests) {
    most_keys = std::max(most_keys, request.kv_length);
    least = std::min(least, request.length);
  }
  const double tasks = static_cast<double>(a.requests.size()) * static_cast<double>(a.kv_heads);
  const auto all = static_cast<double>(machine().cube_cores);
  const bool idle = tasks <= 0.4 * all || (tasks <= 0.8 * all && most_keys >= machine().cube_cores * 512);
  const bool decodes = a.pages != Pages::None && a.sparse != 4 && !a.sunk && s.longest <= 16 &&
                       s.longest * s.group <= 128 && least > 0 && most_keys >= 1024 && idle;
  return fixed + (decodes ? shared_bytes(a, s.group) : 0);
}

// The pair that this operator replaced: no source of its workspace was read (assumed: a part per 512 keys).
uint64_t pair_bytes(const Attention& a) {
  uint64_t floats = 0;
  for (const Request& request : a.requests) {
    const auto parts = static_cast<uint64_t>(std::min<int64_t>(parts_of(request.kv_length, 512), machine().cube_cores));
    floats += parts * static_cast<uint64_t>(a.heads * request.length * (a.value_width + 2));
  }
  return (uint64_t{256} << 10) + floats * sizeof(float);
}

}  // namespace

bool joins_tokens(const Attention& a) {
  return a.layout == "TND" && a.rope_width == 0 && a.width == a.value_width && a.width <= 256 && !a.sunk_apart;
}

uint64_t attention_workspace(const Operator& op, const Attention& a, bool bound) {
  if (a.one_token || !a.has_pages) return pair_bytes(a);
  if (joins_tokens(a)) return joined_bytes(op, a, bound);
  return a.width == 512 && a.rope_width > 0 ? latent_bytes(op, a, bound) : general_bytes(op, a, bound);
}

}  // namespace ascend_sim
