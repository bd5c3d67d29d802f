// Flight: a step between submit() and wait(), with what is needed to compute it once more.
//
// Engine owns two or more, one per slot of the staging where the device computes by itself; they take turns. The host's
// results of a step lie in its flight, so that those of one step stay while the next one runs. One thread at a time.
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
};

// The marks around a step on its stream.
struct StepMarks {
  std::unique_ptr<Event> begin, end;
  Ticket ticket = 0;  // of the step that they were recorded for last
};

}  // namespace reprise::engine
