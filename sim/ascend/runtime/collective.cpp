#include "ascend/runtime/collective.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "ascend/ops/numbers.h"
#include "ascend/runtime/hccl.h"
#include "ascend/runtime/meeting.h"

namespace ascend_sim {

namespace {

using Kind = CollectiveTask::Kind;

template <typename T>
T reduced(T a, T b, int32_t op) {
  switch (op) {
    case HCCL_REDUCE_PROD: return static_cast<T>(a * b);
    case HCCL_REDUCE_MAX: return std::max(a, b);
    case HCCL_REDUCE_MIN: return std::min(a, b);
    default: return static_cast<T>(a + b);
  }
}

// 16-bit floats are added in fp32.
template <typename T>
void reduce_each(uint8_t* into, const uint8_t* other, size_t bytes, int32_t op) {
  for (size_t i = 0; i + sizeof(T) <= bytes; i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, into + i, sizeof a);
    std::memcpy(&b, other + i, sizeof b);
    if constexpr (std::is_arithmetic_v<T>)
      a = reduced(a, b, op);
    else
      a = convert<T>(reduced(widen(a), widen(b), op));
    std::memcpy(into + i, &a, sizeof a);
  }
}

// into = into op other. Types are those that check_reduction() lets pass.
void reduce(uint8_t* into, const uint8_t* other, size_t bytes, int32_t type, int32_t op) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8: return reduce_each<int8_t>(into, other, bytes, op);
    case HCCL_DATA_TYPE_INT16: return reduce_each<int16_t>(into, other, bytes, op);
    case HCCL_DATA_TYPE_INT32: return reduce_each<int32_t>(into, other, bytes, op);
    case HCCL_DATA_TYPE_INT64: return reduce_each<int64_t>(into, other, bytes, op);
    case HCCL_DATA_TYPE_FP16: return reduce_each<Half>(into, other, bytes, op);
    case HCCL_DATA_TYPE_BFP16: return reduce_each<Bf16>(into, other, bytes, op);
    default: return reduce_each<float>(into, other, bytes, op);
  }
}

// Those bytes of a piece that lie in [begin, end) of what its rank sends, to where they belong from `to` on.
void copy_range(const Meeting::Parts& parts, int rank, size_t begin, size_t end, uint8_t* to) {
  const size_t first = std::max(begin, parts.offset), last = std::min(end, parts.offset + parts.bytes[rank]);
  if (first < last) std::memcpy(to + (first - begin), parts.data[rank] + (first - parts.offset), last - first);
}

// Seconds that ranks wait for each other: HCCL_EXEC_TIMEOUT, 1836 by default, 0 for ever
// (hicann/hccl docs/zh/user_guide/hccl_env/HCCL_EXEC_TIMEOUT.md).
double timeout_seconds() {
  const char* text = std::getenv("HCCL_EXEC_TIMEOUT");
  return text && *text ? std::strtod(text, nullptr) : 1836;
}

void take_part(const CollectiveTask& t, const Meeting::Parts& parts, uint8_t* to) {
  const int ranks = t.meeting->size(), me = t.meeting->rank();
  const size_t part = t.count * t.element;
  switch (t.kind) {
    case Kind::AllGather:
      for (int r = 0; r < ranks; ++r) copy_range(parts, r, 0, part, to + static_cast<size_t>(r) * part);
      return;
    case Kind::Broadcast: return copy_range(parts, t.root, 0, part, to);
    case Kind::AllReduce:
    case Kind::ReduceScatter: {
      std::vector<uint8_t> sum(parts.data[0], parts.data[0] + parts.bytes[0]);
      for (int r = 1; r < ranks; ++r) reduce(sum.data(), parts.data[r], sum.size(), t.type, t.reduction);
      Meeting::Parts result = parts;
      result.data[0] = sum.data();
      const size_t begin = t.kind == Kind::AllReduce ? 0 : static_cast<size_t>(me) * part;
      return copy_range(result, 0, begin, begin + part, to);
    }
    case Kind::AllToAll:
      for (int r = 0; r < ranks; ++r)
        copy_range(parts, r, static_cast<size_t>(me) * part, static_cast<size_t>(me + 1) * part,
                   to + static_cast<size_t>(r) * part);
      return;
    case Kind::AllToAllV: break;
  }
}

}  // namespace

const char* CollectiveTask::name() const {
  switch (kind) {
    case Kind::AllReduce: return "HcclAllReduce";
    case Kind::Broadcast: return "HcclBroadcast";
    case Kind::ReduceScatter: return "HcclReduceScatter";
    case Kind::AllGather: return "HcclAllGather";
    case Kind::AllToAll: return "HcclAlltoAll";
    case Kind::AllToAllV: return "HcclAlltoAllV";
  }
  return "";
}

namespace {

size_t extent(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& begins) {
  uint64_t end = 0;
  for (size_t r = 0; r < counts.size(); ++r)
    if (counts[r] > 0) end = std::max(end, begins[r] + counts[r]);
  return end;
}

}  // namespace

size_t CollectiveTask::sent_bytes() const {
  if (kind == Kind::AllToAllV) return extent(send_counts, send_begins) * element;
  const auto ranks = static_cast<size_t>(meeting->size());
  return count * element * (kind == Kind::ReduceScatter || kind == Kind::AllToAll ? ranks : 1);
}

size_t CollectiveTask::taken_bytes() const {
  if (kind == Kind::AllToAllV) return extent(take_counts, take_begins) * element;
  const auto ranks = static_cast<size_t>(meeting->size());
  return count * element * (kind == Kind::AllGather || kind == Kind::AllToAll ? ranks : 1);
}

size_t link_bytes(const CollectiveTask& t) {
  const auto ranks = static_cast<size_t>(t.meeting->size());
  switch (t.kind) {
    case Kind::AllReduce: return 2 * t.count * t.element / ranks;  // scattered, then gathered
    case Kind::AllToAllV:
      return t.send_counts.empty() ? 0 : *std::max_element(t.send_counts.begin(), t.send_counts.end()) * t.element;
    default: return t.count * t.element;
  }
}

std::string collect(const CollectiveTask& t, const void* from, void* to, double* clock,
                    const std::function<std::string()>& stop) {
  Meeting& meeting = *t.meeting;
  const auto ranks = static_cast<size_t>(meeting.size());
  const auto me = static_cast<size_t>(meeting.rank());
  const auto begin = std::chrono::steady_clock::now();
  const double limit = timeout_seconds();
  const auto stopped = [&]() -> std::string {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (limit > 0 && waited.count() > limit)
      return "other ranks did not come within HCCL_EXEC_TIMEOUT (" + std::to_string(static_cast<int>(limit)) + " s)";
    return stop();
  };
  Meeting::What what;
  std::strncpy(what.name, t.name(), sizeof what.name - 1);
  what.count = t.count;
  what.type = t.type;
  what.reduction = t.reduction;
  what.root = t.root;
  auto* out = static_cast<uint8_t*>(to);
  if (t.kind != Kind::AllToAllV)
    return meeting.exchange(
        what, from, from == nullptr ? 0 : t.sent_bytes(), clock,
        [&](const Meeting::Parts& parts) {
          if (from != nullptr) take_part(t, parts, out);
        },
        stopped);
  // Who sends how much to whom is known to the senders alone: first the counts, then the bytes.
  std::vector<uint64_t> mine = t.send_counts, all(2 * ranks * ranks);
  mine.insert(mine.end(), t.send_begins.begin(), t.send_begins.end());
  std::string problem = meeting.exchange(
      what, mine.data(), mine.size() * sizeof(uint64_t), clock,
      [&](const Meeting::Parts& parts) {
        for (size_t r = 0; r < ranks; ++r)
          std::memcpy(all.data() + 2 * ranks * r, parts.data[r], 2 * ranks * sizeof(uint64_t));
      },
      stopped);
  if (!problem.empty()) return problem;
  for (size_t r = 0; r < ranks; ++r)
    if (all[2 * ranks * r + me] != t.take_counts[r])
      problem = "rank " + std::to_string(r) + " sends " + std::to_string(all[2 * ranks * r + me]) +
                " elements, expected are " + std::to_string(t.take_counts[r]);
  const std::string later = meeting.exchange(
      what, from, from == nullptr ? 0 : t.sent_bytes(), clock,
      [&](const Meeting::Parts& parts) {
        if (from == nullptr || !problem.empty()) return;
        for (size_t r = 0; r < ranks; ++r) {
          const size_t begin = all[2 * ranks * r + ranks + me] * t.element;
          copy_range(parts, static_cast<int>(r), begin, begin + t.take_counts[r] * t.element,
                     out + t.take_begins[r] * t.element);
        }
      },
      stopped);
  return problem.empty() ? later : problem;
}

std::string meet_and_compute(const Exchange& exchange, const std::string& name, Meeting* meeting, bool computes,
                             double* clock, double* bytes, const std::function<std::string()>& stop) {
  const int ranks = meeting ? meeting->size() : 1;
  std::vector<std::vector<uint8_t>> all(static_cast<size_t>(ranks));
  std::vector<uint8_t> mine;
  try {
    if (computes) mine = exchange.give();
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
  if (!meeting) {
    all[0] = std::move(mine);
  } else {
    Meeting::What what;
    std::strncpy(what.name, name.c_str() + (name.starts_with("aclnn") ? 5 : 0), sizeof what.name - 1);
    what.count = exchange.count;
    what.type = exchange.type;
    what.reduction = what.root = -1;
    const std::string problem = meeting->exchange(
        what, mine.data(), mine.size(), clock,
        [&](const Meeting::Parts& parts) {
          for (int r = 0; r < ranks; ++r)
            all[static_cast<size_t>(r)].insert(all[static_cast<size_t>(r)].end(), parts.data[r],
                                               parts.data[r] + parts.bytes[r]);
        },
        stop);
    if (!problem.empty()) return problem;
  }
  try {
    if (computes) *bytes = exchange.take(all);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
  return "";
}

}  // namespace ascend_sim
