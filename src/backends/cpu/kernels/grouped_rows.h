// How a product in groups divides its work: (group, panel) pairs among threads, by what they cost. Empty groups cost
// nothing. Threads help each other (parts.h) where groups have many rows. Internal linkage, as in a source file of its
// own.
#pragma once

#include <cstring>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/kernels/parts.h"

namespace reprise::cpu::REPRISE_ISA {
namespace {

// The bytes of a panel cost about as much as computing this many rows with them.
constexpr int64_t kRowsOfAPanel = 8;

// The borders of the groups: starts as they are, made ascending and kept inside the rows.
struct GroupWalk {
  const int32_t* starts;
  int64_t groups, rows;

  int64_t first() const { return std::min<int64_t>(rows, std::max<int32_t>(0, starts[0])); }

  // Calls body(group, first row, rows) for every group that has rows; returns the first row behind the last one.
  template <typename Body>
  int64_t each(const Body& body) const {
    int64_t begin = first();
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t end = std::min(rows, std::max<int64_t>(begin, starts[g + 1]));
      if (end > begin) body(g, begin, end - begin);
      begin = end;
    }
    return begin;
  }
};

// Calls body(group, first row, rows, panels) with the panels of every group that are the thread's share, and returns
// the first row behind the last one.
template <typename Body>
int64_t for_each_share(const GroupWalk& walk, int64_t panels, int thread, int threads, const Body& body) {
  int64_t total = 0;
  walk.each([&](int64_t, int64_t, int64_t rows) { total += (kRowsOfAPanel + rows) * panels; });
  const int64_t from = total * thread / threads, to = total * (thread + 1) / threads;
  int64_t at = 0;
  return walk.each([&](int64_t g, int64_t first, int64_t rows) {
    const int64_t cost = kRowsOfAPanel + rows;
    const auto panel_at = [&](int64_t border) {
      return std::min(panels, std::max<int64_t>(0, (border - at + cost - 1) / cost));
    };
    const Range mine{from <= at ? 0 : panel_at(from), to <= at ? 0 : panel_at(to)};
    if (mine.begin < mine.end) body(g, first, rows, mine);
    at += cost * panels;
  });
}

// Calls body(group, first row, rows, panels) for what this thread computes: panels of one group at a time, which follow
// each other as long as they are of one share. Returns the first row behind the last group.
template <typename Body>
int64_t for_each_part(const GroupWalk& walk, int64_t panels, const Launch& l, const Body& body) {
  constexpr int64_t kPartPanels = 8;
  const bool helps = walk.rows > kAlone * walk.groups;
  const int64_t size = helps ? kPartPanels : panels;
  const auto parts_of = [&](Range of) { return (of.end - of.begin + size - 1) / size; };
  Helper helper(l, helps);
  int64_t used = 0;
  do {
    const auto share_of_owner = [&](const auto& each) {
      return for_each_share(walk, panels, helper.owner(), l.threads, each);
    };
    int64_t count = 0, before = 0;
    used = share_of_owner([&](int64_t, int64_t, int64_t, Range of) { count += parts_of(of); });
    int64_t part = helper.next(count);
    if (part < 0) continue;
    share_of_owner([&](int64_t g, int64_t first, int64_t rows, Range of) {
      const int64_t end = before + parts_of(of);
      while (part >= 0 && part < end) {
        const int64_t begin = of.begin + (part - before) * size;
        body(g, first, rows, Range{begin, std::min(of.end, begin + size)});
        part = helper.next(count);
      }
      before = end;
    });
  } while (helper.next_owner());
  return used;
}

// Rows of no group, [0, walk.first()) and [used, walk.rows), become zeros.
template <typename T>
void clear_rows(const GroupWalk& walk, int64_t used, T* out, int64_t n, const Launch& l) {
  const auto clear = [&](int64_t first, int64_t count) {
    const Range mine = l.share(count);
    if (mine.begin < mine.end)
      std::memset(out + (first + mine.begin) * n, 0, static_cast<size_t>((mine.end - mine.begin) * n) * sizeof(T));
  };
  clear(0, walk.first());
  clear(used, walk.rows - used);
}

}  // namespace
}  // namespace reprise::cpu::REPRISE_ISA
