// Collectives of the CPU: ranks write their parts into memory that all of them see, then meet. The result is read where
// it was written; nothing is copied a second time. Where the world has other hosts, a rank says besides which bytes it
// has written, and its host sends those (ranks/link.h).
#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/register.h"
#include "base/half.h"
#include "ops/args/collectives.h"
#include "ops/args/draws.h"
#include "ops/draw.h"
#include "ranks/past_caches.h"

namespace reprise::cpu {
namespace {

// Columns [begin, end) of the thread's own part, in all rows; or rows, where there are many.
void write_columns(const AllGatherArgs& a, const Launch& l, bool past_caches) {
  const int64_t rows = l.size(a.rows);
  const auto copy = [&](Range r, Range bytes) {
    const auto* from = static_cast<const uint8_t*>(a.x.data);
    auto* to = static_cast<uint8_t*>(a.out.data) + a.first;
    const int64_t width = bytes.end - bytes.begin;
    const ranks::PastCaches past(past_caches, (r.end - r.begin) * width);
    for (int64_t i = r.begin; i < r.end; ++i)
      past.copy(to + i * a.of + bytes.begin, from + i * a.width + bytes.begin, width);
  };
  constexpr int64_t kLine = 64;
  if (rows >= 4 * l.threads)
    copy(l.share(rows), {0, a.width});
  else
    copy({0, rows}, l.share(a.width, kLine));
}

void write_own_rows(const GatherOwnedArgs& a, const Launch& l, bool past_caches) {
  const int32_t* ids = a.ids;
  const Range r = l.share(l.size(a.rows));
  const ranks::PastCaches past(past_caches, (r.end - r.begin) * a.width);
  for (int64_t i = r.begin; i < r.end; ++i)
    if (ids[i] >= 0)
      past.copy(static_cast<uint8_t*>(a.out.data) + i * a.width, static_cast<const uint8_t*>(a.x.data) + i * a.width,
                a.width);
}

// f(i, r): row r is the i-th one without a token; how many there are.
template <class F>
int64_t each_undecided(const GatherUndecidedArgs& a, int64_t rows, const F& f) {
  const int32_t* tokens = a.tokens;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r)
    if (tokens[r] == kUndecidedToken) f(count++, r);
  return count;
}

// Columns of the rank's own part, in those rows.
void write_undecided(const GatherUndecidedArgs& a, const Launch& l) {
  constexpr int64_t kLine = 64;
  const Range bytes = l.share(a.width, kLine);
  const auto* from = static_cast<const uint8_t*>(a.x.data);
  auto* to = static_cast<uint8_t*>(a.out.data) + a.first;
  each_undecided(a, l.size(a.rows), [&](int64_t i, int64_t r) {
    std::memcpy(to + i * a.of + bytes.begin, from + r * a.width + bytes.begin,
                static_cast<size_t>(bytes.end - bytes.begin));
  });
}

// Rows of the rank's own groups, which lie together.
Range own_rows(const GatherGroupsArgs& a, int64_t rows) {
  const int32_t* starts = a.starts;
  const int64_t begin = std::clamp<int64_t>(starts[0], 0, rows);
  return {begin, std::clamp<int64_t>(starts[a.groups], begin, rows)};
}

// Its columns of them.
void write_own_groups(const GatherGroupsArgs& a, const Launch& l, bool past_caches) {
  const auto [begin, end] = own_rows(a, l.size(a.rows));
  const Range r = l.share(end - begin);
  const auto* from = static_cast<const uint8_t*>(a.x.data);
  auto* to = static_cast<uint8_t*>(a.out.data) + a.first;
  const ranks::PastCaches past(past_caches, (r.end - r.begin) * a.width);
  for (int64_t i = begin + r.begin; i < begin + r.end; ++i) past.copy(to + i * a.of, from + i * a.width, a.width);
}

void take_own_groups(const OwnGroupsArgs& a, const Launch& l) {
  const int32_t* starts = a.starts;
  int32_t* out = a.out;
  const Range r = l.share(a.count + 1);
  for (int64_t i = r.begin; i < r.end; ++i) out[i] = starts[a.first + i];
}

void take_own_slots(const OwnIndicesArgs& a, const Launch& l) {
  const int32_t *slots = a.indices, *rows = a.rows;
  int32_t* out = a.out;
  const Range r = l.share(l.size(a.count));
  for (int64_t i = r.begin; i < r.end; ++i) out[i] = i >= rows[0] && i < rows[1] ? slots[i] : -1;
}

void take_own_cu_seqlens(const OwnIndicesArgs& a, const Launch& l) {
  const int32_t *cu_seqlens = a.indices, *rows = a.rows;
  int32_t* out = a.out;
  const Range r = l.share(l.size(a.count));
  for (int64_t i = r.begin; i < r.end; ++i) out[i] = std::max(rows[0], std::min(rows[1], cu_seqlens[i]));
}

void shift_ids(const LocalIdsArgs& a, const Launch& l) {
  const int32_t* ids = a.ids;
  int32_t* out = a.out;
  const Range r = l.share(l.size(a.rows));
  for (int64_t i = r.begin; i < r.end; ++i) {
    const int64_t local = ids[i] - a.first;
    out[i] = local >= 0 && local < a.count ? static_cast<int32_t>(local) : -1;
  }
}

void pair_up(const ArgmaxPairsArgs& a, const Launch& l) {
  const float* x = a.x;
  const int32_t* ids = a.ids;
  int32_t* out = a.out;
  const Range r = l.share(l.size(a.rows));
  for (int64_t i = r.begin; i < r.end; ++i) {
    std::memcpy(out + 2 * i, x + i * a.width + ids[i], sizeof(float));
    out[2 * i + 1] = static_cast<int32_t>(a.first) + ids[i];
  }
}

void merge(const MergeArgmaxArgs& a, const Launch& l) {
  const int32_t* pairs = a.pairs;
  int32_t* out = a.out;
  const Range r = l.share(l.size(a.rows));
  for (int64_t i = r.begin; i < r.end; ++i) {
    const int32_t* row = pairs + 2 * a.ranks * i;
    int64_t best = 0;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t n = 0; n < a.ranks; ++n) {
      float value = 0;
      std::memcpy(&value, row + 2 * n, sizeof value);
      if (value > largest) {
        largest = value;
        best = n;
      }
    }
    out[i] = row[2 * best + 1];
  }
}

template <class A, void (*body)(const A&, const Launch&)>
void run(const LaunchArgs& args, const LiveSizes& live, int thread, int threads) {
  enter<A>(args, live, thread, threads, body);
}

ranks::Member& member_of(const LaunchArgs& args) {
  return *const_cast<ranks::Member*>(static_cast<const ranks::Member*>(args.constant));
}

template <class A, void (*body)(const A&, const Launch&, bool)>
void write(const LaunchArgs& args, const LiveSizes& live, int thread, int threads) {
  body(args.as<A>(), Launch{live, thread, threads, args.workspace, args.way}, member_of(args).copies_past_caches());
}

void write_and_mark_own_rows(const LaunchArgs& args, const LiveSizes& live, int thread, int threads) {
  write<GatherOwnedArgs, write_own_rows>(args, live, thread, threads);
  ranks::Member& member = member_of(args);
  if (member.world().one_host()) return;
  const auto& a = args.as<GatherOwnedArgs>();
  const int32_t* ids = a.ids;
  const uint64_t epoch = member.next_epoch(thread), mark = ranks::owner_mark(epoch, member.world().rank);
  uint64_t* marks = member.region().marks(epoch);
  const Range r = share(std::min<int64_t>(a.rows.value(live), ranks::Region::kMarks), thread, threads);
  for (int64_t i = r.begin; i < r.end; ++i)
    if (ids[i] >= 0) marks[i] = mark;
}

ranks::Part part_of(const AllGatherArgs& a, const LiveSizes& live) {
  return {.of = static_cast<uint64_t>(a.of),
          .row_end = static_cast<uint64_t>(a.rows.value(live)),
          .first = static_cast<uint64_t>(a.first),
          .width = static_cast<uint64_t>(a.width)};
}
ranks::Part part_of(const GatherOwnedArgs& a, const LiveSizes& live) {
  return {.of = static_cast<uint64_t>(a.width), .row_end = static_cast<uint64_t>(a.rows.value(live)), .owned = 1};
}
ranks::Part part_of(const GatherGroupsArgs& a, const LiveSizes& live) {
  const Range own = own_rows(a, a.rows.value(live));
  return {.of = static_cast<uint64_t>(a.of),
          .row_begin = static_cast<uint64_t>(own.begin),
          .row_end = static_cast<uint64_t>(own.end),
          .first = static_cast<uint64_t>(a.first),
          .width = static_cast<uint64_t>(a.width)};
}

ranks::Part part_of(const GatherUndecidedArgs& a, const LiveSizes& live) {
  const int64_t count = each_undecided(a, a.rows.value(live), [](int64_t, int64_t) {});
  return {.of = static_cast<uint64_t>(a.of),
          .row_end = static_cast<uint64_t>(count),
          .first = static_cast<uint64_t>(a.first),
          .width = static_cast<uint64_t>(a.width)};
}

// Every thread of the rank has written its share: a barrier stands between the parts of a launch.
template <class A>
void meet(const LaunchArgs& args, const LiveSizes& live, int thread, int) {
  ranks::Member& member = member_of(args);
  if (thread != 0 || member.world().one_host()) return member.meet(thread);
  const auto& a = args.as<A>();
  ranks::Part part = part_of(a, live);
  part.at = static_cast<uint64_t>(static_cast<uint8_t*>(a.out.data) - member.region().arena());
  member.meet(thread, part);
}

template <class A>
void add(KernelRegistry& kernels, const std::shared_ptr<ranks::Member>& member, std::string_view op, CpuKernel write) {
  KernelEntry e = entry_of({.op = op, .bind = [member](const OpCall&, LaunchArgs& to) { to.constant = member.get(); }});
  e.part = {opaque(write), opaque(meet<A>)};
  kernels.add(std::move(e));
}

}  // namespace

void register_collectives(KernelRegistry& kernels, std::shared_ptr<ranks::Member> member, Isa isa) {
  add<AllGatherArgs>(kernels, member, "all_gather", write<AllGatherArgs, write_columns>);
  add<GatherOwnedArgs>(kernels, member, "gather_owned", write_and_mark_own_rows);
  add<GatherGroupsArgs>(kernels, member, "gather_groups", write<GatherGroupsArgs, write_own_groups>);
  add<GatherUndecidedArgs>(kernels, member, "gather_undecided", run<GatherUndecidedArgs, write_undecided>);
  const auto add_local = [&](std::string_view op, CpuKernel kernel) {
    KernelEntry e = entry_of({.op = op});
    e.part[0] = opaque(kernel);
    kernels.add(std::move(e));
  };
  add_local("local_ids", run<LocalIdsArgs, shift_ids>);
  add_local("own_groups", run<OwnGroupsArgs, take_own_groups>);
  add_local("own_slots", run<OwnIndicesArgs, take_own_slots>);
  add_local("own_cu_seqlens", run<OwnIndicesArgs, take_own_cu_seqlens>);
  add_local("sum_parts", kernel_table(isa).sum_parts);
  add_local("argmax_pairs", run<ArgmaxPairsArgs, pair_up>);
  add_local("merge_argmax", run<MergeArgmaxArgs, merge>);
}

}  // namespace reprise::cpu
