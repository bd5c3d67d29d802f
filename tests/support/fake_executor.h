// FakeExecutor: computes tokens from what lies in the KV pages, so a wrong page, a lost copy or a stale prefix shows in
// the tokens. It may have states besides: a slot holds a hash of the tokens so far, and behind it the drafts of the
// step that wrote it. Where state and pages disagree, other tokens follow. It checks what a step may ask, as the real
// engine does.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/null/null_device.h"
#include "engine/executor.h"

namespace reprise::sched {

class FakeExecutor final : public engine::Executor {
 public:
  static constexpr int32_t kVocab = 29, kEos = 1, kSpoiled = -7;

  struct Limits {
    int64_t rows = 4, tokens = 64, pages = 20, context = 1000;
    int64_t state_drafts = 0;  // that fit a state; 0: there are no states
  };
  explicit FakeExecutor(Limits limits)
      : limits_(limits),
        pool_(std::move(kv::KvPool::create(device_->pool(), kv::KvShape::grouped(1, 1, 1, DType::F32), limits.pages))
                  .value()) {
    if (limits.state_drafts == 0) return;
    const size_t slot = static_cast<size_t>(1 + limits.state_drafts) * sizeof(uint64_t);
    states_ = std::move(kv::StatePool::create(device_->pool(), {{"state", slot}}, limits.rows, 3, limits.rows)).value();
  }

  // The logits after a history; the largest is the greedy answer of the model.
  static std::vector<float> logits_of(std::span<const int32_t> history) {
    uint64_t h = kNothing;
    for (int32_t t : history) h = behind(h, t);
    return logits_behind(h);
  }
  static constexpr uint64_t kNothing = 1469598103934665603u;
  static uint64_t behind(uint64_t h, int32_t token) { return (h ^ static_cast<uint64_t>(token + 1)) * 1099511628211u; }
  static std::vector<float> logits_behind(uint64_t h) {
    std::vector<float> row(kVocab);
    for (float& v : row) {
      h = h * 6364136223846793005u + 1442695040888963407u;
      v = static_cast<float>(h >> 40) / (1 << 22);
    }
    return row;
  }

  int64_t context_length() const override { return limits_.context; }
  int64_t vocab_size() const override { return kVocab; }
  int64_t max_step_tokens() const override { return limits_.tokens; }
  int64_t max_step_rows() const override { return limits_.rows; }
  kv::KvPool& kv_pool() override { return pool_; }
  Status copy_page(kv::PageId from, kv::PageId to) override {
    ++copies;
    compute_all();  // as on a stream
    return pool_.copy_page(from, to, [](void* dst, const void* src, size_t n) {
      std::memcpy(dst, src, n);
      return Status::ok();
    });
  }
  bool has_greedy_steps() const override { return greedy_steps; }
  bool overlaps() const override { return runs_beside; }
  int64_t max_in_flight() const override { return in_flight_limit; }
  int64_t max_verify_rows() const override { return limits_.rows; }
  int64_t max_drafts() const override { return has_states() ? limits_.state_drafts : INT64_MAX; }
  bool has_states() const override { return states_.slots() > 0; }
  kv::StatePool* kept_states() override { return has_states() ? &states_ : nullptr; }
  engine::RowsCost rows_cost(int64_t rows, int64_t) const override { return {true, cost ? cost(rows) : std::nullopt}; }

  Result<engine::Ticket> submit(std::span<const engine::StepItem> items, engine::StepOutput output) override {
    if (in_flight() >= in_flight_limit) return error(Code::Internal, "{} steps are in flight", in_flight_limit);
    RETURN_IF_ERROR(launch(items, output));
    most_in_flight = std::max(most_in_flight, static_cast<int64_t>(flights_.size()));
    if (!runs_beside) compute(flights_.size() - 1);
    return flights_.back().ticket;
  }
  Result<engine::StepResult> wait(engine::Ticket ticket) override {
    if (flights_.empty() || flights_.front().ticket != ticket)
      return error(Code::Internal, "step {} is not the next in flight", ticket);
    compute(0);
    done_ = std::move(flights_.front());
    flights_.pop_front();
    RETURN_IF_ERROR(done_.status);
    engine::StepResult result;
    if (done_.output == engine::StepOutput::Logits)
      result.logits = done_.logits;
    else
      result.tokens = done_.next;
    result.gap_us = gap_us;
    return result;
  }

  bool greedy_steps = true;
  bool runs_beside = false;  // as a device of its own: a step computes when it is waited for
  int64_t in_flight_limit = 2;
  std::function<void()> during_step;
  std::function<std::optional<double>(int64_t rows)> cost;  // of steps of single tokens; null: unknown
  std::optional<double> gap_us;                             // as the device's clock would tell, of every step
  int64_t verify_steps = 0;                                 // of one sequence each
  int64_t steps = 0, copies = 0, computed = 0, most_sequences = 0, most_tokens = 0, most_in_flight = 0;
  int64_t in_flight() const { return static_cast<int64_t>(flights_.size()); }
  std::optional<int64_t> fail_at;  // number of the step
  // Number of the step whose keys and values are not numbers: whoever reads them later gets logits that are none.
  std::optional<int64_t> spoil_at;
  std::optional<size_t> spoil_item;  // of that step alone; none: all of them
  Code fail_code = Code::Device;
  std::vector<std::vector<int64_t>> counts;  // of the items of each step

 private:
  // What a step computes of one sequence: tokens [begin, end). The first comes from row `fed` of the step before, if
  // that is not negative.
  struct Part {
    const engine::Sequence* sequence;
    std::vector<kv::PageId> pages;
    std::vector<int32_t> tokens;
    int64_t begin, logit_rows, fed;
    int64_t drafts = 0, came_true = 0;
    kv::SlotId read = kv::kZeroSlot, write = kv::kScratchSlot;
    bool certain = false;
  };
  struct Flight {
    engine::Ticket ticket = 0;
    int64_t number = 0;
    engine::StepOutput output = engine::StepOutput::Logits;
    std::vector<Part> parts;
    std::vector<float> logits;
    std::vector<int32_t> next;
    bool computed = false;
    Status status;
  };

  Status launch(std::span<const engine::StepItem> items, engine::StepOutput output) {
    Flight f;
    f.ticket = ++tickets_;
    f.number = ++steps;
    f.output = output;
    counts.emplace_back();
    int64_t tokens = 0, rows = 0;
    for (const engine::StepItem& item : items) {
      engine::Sequence& s = *item.sequence;
      const int64_t own_end = s.cached() + item.own(), end = s.cached() + item.count;
      if (item.own() < 1 || own_end > s.size()) return invalid("{} tokens of {}", item.own(), s.uncached());
      if (!item.drafts.empty() && (own_end != s.size() || s.pending()))
        return invalid("drafts behind token {} of {}", own_end, s.size());
      if (kv::pages_for(end) > static_cast<int64_t>(s.pages().size())) return invalid("no page for token {}", end);
      for (int64_t t = s.cached(); t < end; ++t)
        EXPECT_TRUE(pool_.in_use(s.pages()[static_cast<size_t>(t / kv::kPageTokens)]));
      Part p{&s,         s.pages(),   {s.tokens().begin() + s.cached(), s.tokens().begin() + own_end},
             s.cached(), item.logits, -1};
      p.tokens.insert(p.tokens.end(), item.drafts.begin(), item.drafts.end());
      p.drafts = static_cast<int64_t>(item.drafts.size());
      p.certain = item.certain;
      if (has_states()) {
        if (p.drafts > limits_.state_drafts) return invalid("{} drafts of a state", p.drafts);
        if (!s.states()) {
          ASSIGN_OR_RETURN(s.states(), states_.allocate());
        }
        p.read = s.state_read(), p.write = s.states().next(), p.came_true = s.came_true();
      }
      if (!item.drafts.empty()) ++verify_steps;
      if (s.pending() && end == s.size()) {
        EXPECT_EQ(item.count, 1);
        p.fed = row_of(s);
        if (p.fed < 0) return invalid("nobody gives the token that is pending");
      }
      f.parts.push_back(std::move(p));
      s.advance(item.own());
      tokens += item.count;
      rows += item.logits;
      counts.back().push_back(item.count);
    }
    const auto n = static_cast<int64_t>(items.size());
    if (n > limits_.rows || rows > limits_.rows || tokens > limits_.tokens || n == 0)
      return invalid("a step of {} sequences, {} rows and {} tokens", n, rows, tokens);
    flights_.push_back(std::move(f));
    computed += tokens;
    most_sequences = std::max(most_sequences, n);
    most_tokens = std::max(most_tokens, tokens);
    return Status::ok();
  }

  // The row that the step in flight gives for this sequence.
  int64_t row_of(const engine::Sequence& s) const {
    if (flights_.empty() || flights_.back().output != engine::StepOutput::NextTokens) return -1;
    int64_t row = 0;
    for (const Part& p : flights_.back().parts) {
      row += p.logit_rows;
      if (p.sequence == &s) return p.logit_rows > 0 && (p.certain || !p.drafts) ? row - 1 : -1;
    }
    return -1;
  }

  void compute_all() {
    for (size_t i = 0; i < flights_.size(); ++i) compute(i);
  }

  void compute(size_t index) {
    Flight& f = flights_[index];
    if (std::exchange(f.computed, true)) return;
    if (during_step) during_step();
    if (fail_at && f.number == *fail_at) {
      f.status = error(fail_code, "the device has failed");
      return;
    }
    const Flight& before = index == 0 ? done_ : flights_[index - 1];
    for (Part& p : f.parts) {
      const bool spoilt =
          spoil_at == f.number && (!spoil_item || *spoil_item == static_cast<size_t>(&p - f.parts.data()));
      if (p.fed >= 0) p.tokens.back() = before.status.is_ok() ? before.next[static_cast<size_t>(p.fed)] : 0;
      for (size_t i = 0; i < p.tokens.size(); ++i)
        slot(p, p.begin + static_cast<int64_t>(i)) = spoilt ? kSpoiled : p.tokens[i];
      const int64_t end = p.begin + static_cast<int64_t>(p.tokens.size());
      const std::vector<uint64_t> by_state = has_states() ? states_behind(p) : std::vector<uint64_t>();
      uint64_t history = kNothing;
      bool good = true;
      for (int64_t t = 0; t < end; ++t) {
        history = behind(history, slot(p, t));
        good &= slot(p, t) != kSpoiled;
        if (t < end - p.logit_rows) continue;
        const uint64_t known = by_state.empty() ? history : by_state[static_cast<size_t>(t - p.begin)];
        auto row = logits_behind(known == history ? history : known + 3 * history);
        if (!good) std::fill(row.begin(), row.end(), NAN);
        f.logits.insert(f.logits.end(), row.begin(), row.end());
      }
    }
    if (f.output == engine::StepOutput::Logits) return;
    for (float v : f.logits)
      if (std::isnan(v)) f.status = error(Code::Internal, "a hidden state is not a finite number");
    for (size_t at = 0; at < f.logits.size(); at += kVocab) {
      const auto row = f.logits.begin() + static_cast<ptrdiff_t>(at);
      f.next.push_back(static_cast<int32_t>(std::max_element(row, row + kVocab) - row));
    }
  }

  // Behind each token of the part, by the state that it reads; writes the one behind its own tokens, and its drafts.
  std::vector<uint64_t> states_behind(const Part& p) {
    const auto at = [&](kv::SlotId s, int64_t i) -> uint64_t& {
      return reinterpret_cast<uint64_t*>(states_.slot(0, s))[i];
    };
    uint64_t h = at(p.read, 0) ^ kNothing;  // of the slot of zeros: nothing
    for (int64_t i = 1; i <= p.came_true; ++i) h = behind(h, static_cast<int32_t>(at(p.read, i)));
    std::vector<uint64_t> out;
    const auto own = static_cast<int64_t>(p.tokens.size()) - p.drafts;
    for (int64_t i = 0; i < own + p.drafts; ++i) {
      const int32_t token = p.tokens[static_cast<size_t>(i)];
      out.push_back(h = behind(h, token));
      if (i + 1 == own) at(p.write, 0) = h ^ kNothing;
      if (i >= own) at(p.write, i - own + 1) = static_cast<uint64_t>(token);
    }
    return out;
  }

  // Pages of a request that has ended may already be another's: the stream's order keeps them apart.
  int32_t& slot(const Part& p, int64_t t) {
    return reinterpret_cast<int32_t*>(
        pool_.page(0, p.pages[static_cast<size_t>(t / kv::kPageTokens)]))[t % kv::kPageTokens];
  }

  std::unique_ptr<Device> device_ = null::make_null_device();
  Limits limits_;
  kv::KvPool pool_;
  kv::StatePool states_;
  std::deque<Flight> flights_;  // in the order of submission
  Flight done_;                 // the last one that was waited for
  engine::Ticket tickets_ = 0;
};

}  // namespace reprise::sched
