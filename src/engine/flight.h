// Flight: a step between submit() and wait(), with what is needed to compute it once more. Flights: those of an engine,
// in the order of their tickets.
//
// Engine owns a Flights of two or more, one per slot of the staging where the device computes by itself; they take
// turns. The host's results of a step lie in its flight, so that those of one step stay while the next one runs. One
// thread at a time.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor_view.h"
#include "device/host_copy.h"
#include "engine/executor.h"
#include "engine/step_runner.h"

namespace reprise::engine {

// What is staged in the place of a token that row `row` of the step before gives: ranks find the rows by these.
constexpr int32_t fed_mark(int64_t row) { return static_cast<int32_t>(-1 - row); }
constexpr int64_t fed_row(int32_t mark) { return -1 - static_cast<int64_t>(mark); }

struct Flight {
  // A row whose token the step before gives.
  struct FedRow {
    const Sequence* sequence = nullptr;
    int64_t row = 0;
    int64_t position = 0;  // of the token in its sequence
  };

  Ticket ticket = 0;  // 0: nothing was submitted here, or it was waited for
  std::vector<StepItem> items;
  StepOutput output = StepOutput::Logits;
  bool told_finite = false;  // the device says of each row whether it is finite; else the host looks at hidden rows
  StepPlan plan;
  LiveSizes live;
  std::vector<FedRow> fed;
  std::vector<int64_t> ends;  // of each item: the place of the token behind it in its sequence
  std::vector<std::pair<kv::PageId, kv::PageId>> copies;  // of pages, asked for since the step before
  const void* next_tokens = nullptr;                      // where the device writes them
  // The step before has failed, or was computed once more: what this one read of it was wrong.
  bool again = false;
  bool done = false;
  Status status;  // of the launch, then of the step
  double begun_us = 0;
  uint64_t message = 0;  // the number of the message by which ranks know it
  std::optional<double> gap_us;

  // An output of the step in memory of the host, there once the step is done.
  struct Answer {
    TensorView view;  // empty where it was not asked for
    HostCopy copy;
    std::vector<uint8_t> kept;  // of a step that ran as several parts

    template <typename T>
    std::span<T> as() const {
      return {static_cast<T*>(view.data), view.data ? static_cast<size_t>(view.elements()) : 0};
    }
  };
  enum Name : uint8_t { Finite, Logits, Tokens, Logprobs, TopTokens, TopLogprobs, Pooled, kNames };
  std::array<Answer, kNames> answers;

  // The output's name in the program; empty where nothing reads it after this step.
  std::string_view wanted(Name name) const;
  // The row of the result that follows the item's last token; -1: there is none, or it is known when drafts that are
  // not certain were judged.
  int64_t result_row(const Sequence* sequence) const;
  // Copies of what is wanted, in the queue behind the step that `program` runs.
  Status ask(const CompiledModel& program, Device& device, Stream& stream);
  // What the step gave is there: an error where it is not finite; else a token that a sequence waits for gets its
  // place.
  Status accept() const;
  void resolve_tokens() const;
};

// The marks around a step on its stream.
struct StepMarks {
  std::unique_ptr<Event> begin, end;
  Ticket ticket = 0;  // of the step that they were recorded for last
};

class Flights {
 public:
  Flights() = default;
  // Steps that may be in flight at once, 1 or more.
  explicit Flights(size_t most) : all_(most), marks_(most + 2) {}

  size_t most() const { return all_.size(); }
  std::span<Flight> all() { return all_; }
  Ticket last() const { return last_; }  // given out; 0: none was

  // Where the next step goes; it may still hold a step that nobody has waited for (its ticket is not 0).
  Flight& next() { return all_[last_ % all_.size()]; }
  // The step in next() is on its way.
  Ticket give(Flight& f) { return f.ticket = ++last_; }
  // Null: it is not in flight.
  Flight* find(Ticket ticket);
  // The step before this one, which may have no ticket yet; null: it is not in flight any more.
  Flight* before(const Flight& f) { return find(f.ticket != 0 ? f.ticket - 1 : last_); }
  // The slot of the staging that its inputs are in.
  int slot_of(const Flight& f) const { return static_cast<int>(&f - all_.data()); }

  // Those of a step outlive all that may be in flight behind it.
  StepMarks& marks_of(Ticket ticket) { return marks_[ticket % marks_.size()]; }
  // A follower gives no tickets: one by slot, for the messages that it was told.
  StepMarks& marks_in(size_t slot) { return marks_[slot]; }
  std::span<const StepMarks> marks() const { return marks_; }

 private:
  std::vector<Flight> all_;
  std::vector<StepMarks> marks_;
  Ticket last_ = 0;
};

}  // namespace reprise::engine
