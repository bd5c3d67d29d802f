// FakeExecutor: computes tokens from what lies in the KV pages, so a wrong page, a lost copy or a stale prefix shows in
// the tokens. It checks what a step may ask, as the real engine does.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
  };
  explicit FakeExecutor(Limits limits)
      : limits_(limits),
        pool_(std::move(kv::KvPool::create(device_->pool(), kv::KvShape::grouped(1, 1, 1, DType::F32), limits.pages))
                  .value()) {}

  // The logits after a history; the largest is the greedy answer of the model.
  static std::vector<float> logits_of(std::span<const int32_t> history) {
    uint64_t h = 1469598103934665603u;
    for (int32_t t : history) h = (h ^ static_cast<uint64_t>(t + 1)) * 1099511628211u;
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
    finish_launched();  // as on a stream
    return pool_.copy_page(from, to, [](void* dst, const void* src, size_t n) {
      std::memcpy(dst, src, n);
      return Status::ok();
    });
  }
  bool has_greedy_steps() const override { return greedy_steps; }
  void set_while_running(std::function<void()> what) override { while_running_ = std::move(what); }

  Result<std::span<float>> step(std::span<const engine::StepItem> items) override {
    RETURN_IF_ERROR(run(items));
    return std::span<float>(logits_);
  }
  Result<std::span<const int32_t>> step_greedy(std::span<const engine::StepItem> items) override {
    RETURN_IF_ERROR(run(items));
    next_.clear();
    for (float v : logits_)
      if (std::isnan(v)) return error(Code::Internal, "a hidden state is not a finite number");
    for (size_t at = 0; at < logits_.size(); at += kVocab) {
      const auto row = logits_.begin() + static_cast<ptrdiff_t>(at);
      next_.push_back(static_cast<int32_t>(std::max_element(row, row + kVocab) - row));
    }
    return std::span<const int32_t>(next_);
  }

  bool greedy_steps = true;
  bool runs_beside = false;  // as a device of its own: a step computes after everything else that its call does
  std::function<void()> during_step;
  int64_t steps = 0, copies = 0, computed = 0, most_sequences = 0, most_tokens = 0;
  std::optional<int64_t> fail_at;  // number of the step
  // Number of the step whose keys and values are not numbers: whoever reads them later gets logits that are none.
  std::optional<int64_t> spoil_at;
  Code fail_code = Code::Device;
  std::vector<std::vector<int64_t>> counts;  // of the items of each step

 private:
  int32_t& slot(const engine::Sequence& s, int64_t t) {
    const kv::PageId page = s.pages()[static_cast<size_t>(t / kv::kPageTokens)];
    EXPECT_TRUE(pool_.in_use(page));
    return reinterpret_cast<int32_t*>(pool_.page(0, page))[t % kv::kPageTokens];
  }

  Status run(std::span<const engine::StepItem> items) {
    if (fail_at && ++steps == *fail_at) return error(fail_code, "the device has failed");
    if (!fail_at) ++steps;
    logits_.clear();
    counts.emplace_back();
    int64_t tokens = 0, rows = 0;
    for (const engine::StepItem& item : items) {
      engine::Sequence& s = *item.sequence;
      const int64_t end = s.cached() + item.count;
      if (item.count < 1 || end > s.size()) return invalid("{} tokens of {}", item.count, s.uncached());
      if (kv::pages_for(end) > static_cast<int64_t>(s.pages().size())) return invalid("no page for token {}", end);
      launched_.push_back({&s, s.cached(), end, item.logit_rows()});
      s.set_cached(end);
      tokens += item.count;
      rows += item.logit_rows();
      counts.back().push_back(item.count);
    }
    if (during_step) during_step();
    if (runs_beside && while_running_) while_running_();
    finish_launched();
    const auto n = static_cast<int64_t>(items.size());
    if (n > limits_.rows || rows > limits_.rows || tokens > limits_.tokens || n == 0)
      return invalid("a step of {} sequences, {} rows and {} tokens", n, rows, tokens);
    computed += tokens;
    most_sequences = std::max(most_sequences, n);
    most_tokens = std::max(most_tokens, tokens);
    return Status::ok();
  }

  void finish_launched() {
    for (const Launched& l : std::exchange(launched_, {})) {
      const engine::Sequence& s = *l.sequence;
      for (int64_t t = l.begin; t < l.end; ++t)
        slot(s, t) = spoil_at == steps ? kSpoiled : s.tokens()[static_cast<size_t>(t)];
      std::vector<int32_t> history;
      bool good = true;
      for (int64_t t = 0; t < l.end; ++t) {
        history.push_back(slot(s, t));
        good &= history.back() != kSpoiled;
        if (t < l.end - l.logit_rows) continue;
        auto row = logits_of(history);
        if (!good) std::fill(row.begin(), row.end(), NAN);
        logits_.insert(logits_.end(), row.begin(), row.end());
      }
    }
  }

  // What a step computes of one sequence: tokens [begin, end).
  struct Launched {
    const engine::Sequence* sequence;
    int64_t begin, end, logit_rows;
  };

  std::unique_ptr<Device> device_ = null::make_null_device();
  Limits limits_;
  kv::KvPool pool_;
  std::vector<float> logits_;
  std::vector<int32_t> next_;
  std::vector<Launched> launched_;
  std::function<void()> while_running_;
};

}  // namespace reprise::sched
