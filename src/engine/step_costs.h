// StepCosts: how long steps of one phase take, learned while serving; by the device's own clock where it has one.
//
// Replays are filed under the captured size, eager steps under their own row count. A figure counts once it has been
// seen a few times; recent steps weigh more than old ones, because contexts grow. Nothing is allocated by record().
// Owned by a StepRunner; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace reprise::engine {

enum class StepKind : uint8_t { Replay, Eager };

// What times are read from: the host's clock, or where several steps are submitted at once, the device's marks at their
// begin and end. The host's has what it does between steps besides, so figures of one are not compared with the
// other's.
enum class StepClock : uint8_t { Host, Marks };

class StepCosts {
 public:
  struct Entry {
    double microseconds = 0;  // a moving average
    uint32_t count = 0;
  };
  static constexpr uint32_t kEnough = 3;

  // Row counts from 1 to `largest`.
  explicit StepCosts(int64_t largest) : entries_{std::vector<Entry>(largest + 1), std::vector<Entry>(largest + 1)} {}

  void record(StepKind kind, int64_t rows, double microseconds);
  // Exactly these rows, if they were seen often enough.
  std::optional<double> known(StepKind kind, int64_t rows) const;
  // The same, or else between the nearest known row counts on both sides.
  std::optional<double> estimate(StepKind kind, int64_t rows) const;

  // By row count, for saving and for looking at; entry 0 is unused.
  const std::vector<Entry>& entries(StepKind kind) const { return entries_[static_cast<size_t>(kind)]; }
  // What an earlier run learned. Rows beyond the largest are ignored.
  void restore(StepKind kind, int64_t rows, Entry entry);

 private:
  std::vector<Entry> entries_[2];
};

}  // namespace reprise::engine
