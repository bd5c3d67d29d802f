#include "bench/collective_bench.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/elapsed.h"

namespace reprise::apps {
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

// Columns of all ranks side by side in one row.
Result<CollectiveTime> gather(Member& m, int64_t bytes, int64_t repeat) {
  const int64_t share = bytes / m.world().size, first = share * m.world().rank;
  uint8_t* out = m.region().arena();
  const std::vector<uint8_t> mine(static_cast<size_t>(share), 1);
  const ranks::Part part{.of = static_cast<uint64_t>(bytes),
                         .row_end = 1,
                         .first = static_cast<uint64_t>(first),
                         .width = static_cast<uint64_t>(share)};
  for (int64_t i = 0; i < share; ++i) out[first + i] = byte_of(bytes, m.world().rank, i);
  m.meet(0, part);
  for (int rank = 0; rank < m.world().size && !m.aborted(); ++rank)
    for (int64_t i = 0; i < share; ++i)
      if (out[rank * share + i] != byte_of(bytes, rank, i)) return wrong("all_gather", rank * share + i, rank);
  m.meet(0);  // read by all
  const double us = median_us(repeat, [&] {
    std::memcpy(out + first, mine.data(), mine.size());
    m.meet(0, part);
  });
  return CollectiveTime{"all_gather", share * m.world().size, us};
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
  std::vector<CollectiveTime> out;
  for (const int64_t bytes : kSizes) {
    ASSIGN_OR_RETURN(CollectiveTime t, gather(m, bytes, repeat));
    out.push_back(std::move(t));
  }
  RETURN_IF_ERROR(check_owned(m));
  ASSIGN_OR_RETURN(CollectiveTime t, step(m, repeat));
  out.push_back(std::move(t));
  if (m.aborted()) return m.lost();
  // A wrong byte that one rank saw is the error of all ranks: none comes here then.
  RETURN_IF_ERROR(m.agree("exchanged bytes", "as they were sent"));
  if (m.world().front()) RETURN_IF_ERROR(m.publish({.kind = ranks::StepMessage::Kind::Stop}));
  return out;
}

}  // namespace reprise::apps
