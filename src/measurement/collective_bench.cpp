#include "measurement/collective_bench.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "backends/cpu/cpu_kernel.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/kernels/table.h"
#include "base/dtype.h"
#include "base/elapsed.h"
#include "ops/args/collectives.h"
#include "ranks/past_caches.h"

namespace reprise::measurement {
namespace {

using ranks::Member;

constexpr int64_t kSizes[] = {int64_t{4} << 10, int64_t{64} << 10, int64_t{1} << 20};
constexpr int64_t kStepBytes = int64_t{16} << 10;  // inputs of a step
constexpr int64_t kRows = 64;

uint8_t byte_of(int64_t round, int rank, int64_t at) {
  return static_cast<uint8_t>(round * 17 + rank * 59 + at * 3 + 1);
}

Status wrong(const char* what, int64_t at, int of) {
  return error(Code::Device, "{}: byte {}, which is rank {}'s, came as another one", what, at, of);
}

// The middle of so many calls, in microseconds.
double median_us(int64_t repeat, const std::function<void()>& call) {
  std::vector<double> all;
  for (int64_t i = 0; i < repeat; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    all.push_back(seconds_since(begin) * 1e6);
  }
  std::nth_element(all.begin(), all.begin() + repeat / 2, all.end());
  return all[static_cast<size_t>(repeat / 2)];
}

// Columns of all ranks side by side in one row, written, met and read. Two places take turns, so that one meeting is
// enough: who comes to the next one has read the place before.
Result<CollectiveTime> gather(Member& m, int64_t bytes, int64_t repeat) {
  const int64_t share = bytes / m.world().size, of = share * m.world().size, first = share * m.world().rank;
  const ranks::Part line{.of = static_cast<uint64_t>(of),
                         .row_end = 1,
                         .first = static_cast<uint64_t>(first),
                         .width = static_cast<uint64_t>(share)};
  std::vector<uint8_t> mine(static_cast<size_t>(share)), all(static_cast<size_t>(of));
  for (int64_t i = 0; i < share; ++i) mine[static_cast<size_t>(i)] = byte_of(bytes, m.world().rank, i);
  int64_t turn = 0;
  const auto exchange = [&] {
    ranks::Part part = line;
    part.at = static_cast<uint64_t>(bytes * (turn++ % 2));
    uint8_t* place = m.region().arena() + part.at;
    ranks::PastCaches(m.copies_past_caches(), share).copy(place + first, mine.data(), share);
    m.meet(0, part);
    std::memcpy(all.data(), place, all.size());
  };
  exchange();
  for (int rank = 0; rank < m.world().size && !m.aborted(); ++rank)
    for (int64_t i = 0; i < share; ++i)
      if (all[static_cast<size_t>(rank * share + i)] != byte_of(bytes, rank, i))
        return wrong("all_gather", rank * share + i, rank);
  const double us = median_us(repeat, exchange);
  m.meet(0);  // read by all
  return CollectiveTime{"all_gather", of, us};
}

// Sums of fp32 over ranks: behind a gather of parts the kernel of `sum_parts` adds all of them in the order of ranks.
Result<CollectiveTime> reduce(Member& m, int64_t bytes, int64_t repeat) {
  const int64_t n = bytes / static_cast<int64_t>(sizeof(float)), of = bytes * m.world().size;
  const ranks::Part line{.of = static_cast<uint64_t>(of),
                         .row_end = 1,
                         .first = static_cast<uint64_t>(bytes * m.world().rank),
                         .width = static_cast<uint64_t>(bytes)};
  std::vector<float> mine(static_cast<size_t>(n)), sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) mine[static_cast<size_t>(i)] = static_cast<float>((i + m.world().rank) % 97);
  const cpu::CpuKernel sum = cpu::kernel_table(*cpu::parse_isa("auto")).sum_parts;
  LaunchArgs args;
  auto& a = args.as<SumPartsArgs>();
  a = {.own = {mine.data()},
       .out = {sums.data()},
       .rows = Dim(1),
       .parts = m.world().size,
       .place = m.world().rank,
       .width = n,
       .bias_type = DType::F32,
       .out_type = DType::F32};
  int64_t turn = 0;
  const auto add = [&] {
    ranks::Part part = line;
    part.at = static_cast<uint64_t>(of * (turn++ % 2));
    uint8_t* place = m.region().arena() + part.at;
    ranks::PastCaches(m.copies_past_caches(), bytes)
        .copy(place + part.first, reinterpret_cast<const uint8_t*>(mine.data()), bytes);
    m.meet(0, part);
    a.x = {place};
    sum(args, {}, 0, 1);
  };
  add();
  for (int64_t i = 0; i < n && !m.aborted(); ++i) {
    float want = 0;
    for (int r = 0; r < m.world().size; ++r) want += static_cast<float>((i + r) % 97);
    if (sums[static_cast<size_t>(i)] != want)
      return error(Code::Device, "all_reduce: sum {} is {}, and not {}", i, sums[static_cast<size_t>(i)], want);
  }
  const double us = median_us(repeat, add);
  m.meet(0);  // read by all
  return CollectiveTime{"all_reduce", bytes, us};
}

// Rows that are one rank's each.
Status check_owned(Member& m) {
  const int64_t of = 48;
  const uint64_t epoch = m.next_epoch(0);
  uint8_t* out = m.region().arena();
  for (int64_t row = m.world().rank; row < kRows; row += m.world().size) {
    m.region().marks(epoch)[row] = ranks::owner_mark(epoch, m.world().rank);
    for (int64_t i = 0; i < of; ++i) out[row * of + i] = byte_of(row, m.world().rank, i);
  }
  m.meet(0, {.of = static_cast<uint64_t>(of), .row_end = static_cast<uint64_t>(kRows), .owned = 1});
  for (int64_t at = 0; at < kRows * of && !m.aborted(); ++at) {
    const auto rank = static_cast<int>(at / of % m.world().size);
    if (out[at] != byte_of(at / of, rank, at % of)) return wrong("gather_owned", at, rank);
  }
  m.meet(0);
  return Status::ok();
}

// A step to all ranks, and their answers.
Result<CollectiveTime> step(Member& m, int64_t repeat) {
  Status status;
  const double us = median_us(repeat, [&] {
    if (!status.is_ok()) return;
    if (m.world().front()) {
      status = m.publish({.kind = ranks::StepMessage::Kind::Step}, {m.region().arena(), kStepBytes});
      if (status.is_ok()) status = m.await_followers();
    } else {
      status = m.next().status();
      m.done();
    }
  });
  RETURN_IF_ERROR(status);
  return CollectiveTime{"step", kStepBytes, us};
}

}  // namespace

Result<std::vector<CollectiveTime>> measure_collectives(Member& m, int64_t repeat) {
  RETURN_IF_ERROR(m.agree("calls of a measurement", fmt::format("{}", repeat)));  // all have started
  m.choose_copies();
  std::vector<CollectiveTime> out;
  for (const int64_t bytes : kSizes) {
    ASSIGN_OR_RETURN(CollectiveTime t, gather(m, bytes, repeat));
    out.push_back(std::move(t));
  }
  ASSIGN_OR_RETURN(CollectiveTime sums, reduce(m, kSizes[1], repeat));
  out.push_back(std::move(sums));
  RETURN_IF_ERROR(check_owned(m));
  ASSIGN_OR_RETURN(CollectiveTime t, step(m, repeat));
  out.push_back(std::move(t));
  if (m.aborted()) return m.lost();
  // A wrong byte that one rank saw is the error of all ranks: none comes here then.
  RETURN_IF_ERROR(m.agree("exchanged bytes", "as they were sent"));
  if (m.world().front()) RETURN_IF_ERROR(m.publish({.kind = ranks::StepMessage::Kind::Stop}));
  return out;
}

}  // namespace reprise::measurement
