// What a random schedule runs on (random_schedule.h): the fake executor, engines of every device that computes in each
// graph mode, two ranks, parts of ranks, and models with heads or states. Each knows the logits of its model after a
// history, from an engine of its own that computes node by node. One thread, but for the ranks.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "engine/local_world.h"
#include "engine/shared_step.h"
#include "support/answers.h"
#include "support/computing_platforms.h"
#include "support/drafters.h"
#include "support/heads.h"
#include "support/tiny_models.h"

namespace reprise::sched {

using testing_support::ComputingPlatform;

// What a schedule runs on, and the logits that its model gives after a history.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual engine::Executor& executor() = 0;
  // Those that share their steps, with pages of their own and requests of their own.
  virtual std::vector<engine::Executor*> parts() { return {&executor()}; }
  virtual std::vector<float> logits_of(std::span<const int32_t> history) = 0;
  virtual uint64_t copies() const { return 0; }
  // What greedy decoding gives next, where asking costs little.
  virtual testing_support::Foresight foresight() { return nullptr; }
  virtual bool is_fake() const { return false; }  // others that answer alike can be made
  virtual int64_t most_running() const { return 0; }
  // Chooses what differs between schedules.
  virtual void begin(std::mt19937& rng) {}
  // Steps of a run at most, where that was chosen; a run has no drafts.
  virtual int64_t steps_ahead() const { return 1; }
  // For one request at a time, with the draws of the same device; null: the host draws everywhere by one rule.
  virtual engine::Executor* alone() { return nullptr; }

  FakeExecutor::Limits limits;
  int32_t vocab = FakeExecutor::kVocab;
  int64_t longest_answer = 300;
  std::vector<int32_t> eos{FakeExecutor::kEos};
};

class FakeSubject final : public Subject {
 public:
  explicit FakeSubject(std::mt19937& rng) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
    limits = {1 + below(6), 8 + below(200), 3 + below(6), 150 + below(400)};
    limits.tokens = std::max(limits.tokens, limits.rows);
    if (below(3) == 0) limits.state_drafts = 1 + below(8);
    executor_ = std::make_unique<FakeExecutor>(limits);
    executor_->greedy_steps = below(3) != 0;
    executor_->runs_beside = below(2) != 0;
    if (limits.state_drafts == 0) executor_->in_flight_limit = 2 + limits.pages % 3 * 3;  // runs of 1, 4 or 7 steps
  }
  engine::Executor& executor() override { return *executor_; }
  std::vector<float> logits_of(std::span<const int32_t> history) override { return FakeExecutor::logits_of(history); }
  uint64_t copies() const override { return static_cast<uint64_t>(executor_->copies); }
  testing_support::Foresight foresight() override {
    return [](std::span<const int32_t> history, int64_t most) {
      return expected(Tokens(history.begin(), history.end()), most, true);
    };
  }
  bool is_fake() const override { return true; }

 private:
  std::unique_ptr<FakeExecutor> executor_;
};

// What an engine gives behind a history; `known` is the one it has read.
inline std::vector<float> logits_by(engine::Engine& e, engine::Sequence& known, std::span<const int32_t> history,
                                    int64_t chunk, int32_t vocab) {
  if (static_cast<size_t>(known.size()) >= history.size() ||
      !std::equal(known.tokens().begin(), known.tokens().end(), history.begin())) {
    e.release(known);
    known = engine::Sequence(Tokens{});
  }
  for (size_t i = static_cast<size_t>(known.size()); i < history.size(); ++i) known.append(history[i]);
  EXPECT_TRUE(e.reserve(known, known.size()).is_ok());
  for (;;) {
    const int64_t n = std::min(known.uncached(), chunk);
    const engine::StepItem item{&known, n, n == known.uncached()};
    const auto logits = e.step({&item, 1});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    if (!logits.is_ok()) return std::vector<float>(static_cast<size_t>(vocab));
    if (item.logits > 0) return {logits->begin(), logits->end()};
  }
}

// Engines of one graph mode, with decode steps one by one and in runs, and another that computes one history at a time,
// node by node.
class EngineSubject final : public Subject {
 public:
  struct Setup {
    ComputingPlatform where = ComputingPlatform::Cpu;
    GraphMode mode = GraphMode::Whole;
    int ranks = 1;  // the one that computes node by node is always on one
  };
  static constexpr int64_t kRun = 4;

  explicit EngineSubject(Setup setup) : setup_(setup) {
    limits = {3, 40, 4, 200};
    longest_answer = 60;
    if (setup.ranks > 1) {
      auto world = engine::LocalWorld::start(
          setup.ranks, [this](std::shared_ptr<ranks::Member> member) { return open_over(std::move(member)); });
      EXPECT_TRUE(world.is_ok()) << world.status().message();
      if (world.is_ok()) world_ = std::move(*world);
    } else {
      single_ = open(setup.mode, 1);
      if (setup.where != ComputingPlatform::Cpu) runs_ = open(setup.mode, kRun);
    }
    alone_ = open(GraphMode::Eager, 1);
    if (!is_open()) return;
    limits.pages = executor().kv_pool().free_pages();
    vocab = static_cast<int32_t>(executor().vocab_size());
    eos.clear();
    for (int32_t t = 7; t < vocab; t += 29) eos.push_back(t);  // as likely as in the fake one
  }
  ~EngineSubject() override {
    if (alone_) alone_->release(history_);
  }
  bool is_open() const {
    const bool runs = setup_.where == ComputingPlatform::Cpu || runs_;
    return (world_ || (single_ && runs)) && alone_;
  }
  engine::Executor& executor() override {
    if (world_) return world_->front();
    return in_runs_ ? *runs_ : *single_;
  }
  void begin(std::mt19937& rng) override { in_runs_ = runs_ && rng() % 2 == 0; }
  int64_t steps_ahead() const override { return in_runs_ ? kRun : 1; }
  engine::Executor* alone() override {
    alone_->release(history_);
    history_ = engine::Sequence(Tokens{});
    return alone_.get();
  }

  std::vector<float> logits_of(std::span<const int32_t> history) override {
    return logits_by(*alone_, history_, history, limits.tokens, vocab);
  }

 private:
  engine::EngineOptions options_of(GraphMode mode, int64_t steps) const {
    engine::EngineOptions o;
    o.model_path = testing_support::tiny_model_path("llama_gqa3_tied");
    o.dtype = testing_support::dtype_of(setup_.where);
    o.max_running_requests = limits.rows;
    o.chunked_prefill_size = limits.tokens;
    o.max_total_tokens = limits.pages * kv::kPageTokens;
    o.context_length = limits.context;
    if (mode == GraphMode::Eager)
      o.graph.policy = engine::GraphPolicy::Off;
    else
      o.graph.decode = o.graph.prefill = mode;
    o.graph.verify = {4};
    o.steps_ahead = steps;
    if (setup_.where != ComputingPlatform::Cpu) o.graph.decode_sizes = {1, limits.rows}, o.graph.prefill_sizes = {32};
    return o;
  }

  Result<std::unique_ptr<engine::Engine>> open_over(std::shared_ptr<ranks::Member> member) const {
    DeviceOptions device;
    device.threads = 1;
    device.pin_threads = false;
    device.member = member;
    ASSIGN_OR_RETURN(Platform platform, make_platform(device));
    engine::EngineOptions o = options_of(setup_.mode, 1);
    o.member = std::move(member);
    return engine::Engine::create(o, std::move(platform));
  }

  std::unique_ptr<engine::Engine> open(GraphMode mode, int64_t steps) {
    auto platform = testing_support::make_computing_platform(setup_.where, taken_);
    EXPECT_TRUE(platform.is_ok()) << platform.status().message();
    if (!platform.is_ok()) return nullptr;
    auto e = engine::Engine::create(options_of(mode, steps), std::move(*platform));
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? std::move(*e) : nullptr;
  }

  Setup setup_;
  testing_support::Taken taken_;
  std::unique_ptr<engine::Engine> single_, runs_, alone_;  // runs_: null where a device does not compute by itself
  std::unique_ptr<engine::LocalWorld> world_;              // in place of both
  bool in_runs_ = false;
  engine::Sequence history_{Tokens{}};
};

// A model with its head, which may have states, in one graph mode; and the model alone, node by node.
class HeadSubject final : public Subject {
 public:
  struct Setup {
    std::string model, mode;
    int ranks = 1;  // the model alone is always on one
    int parts = 1;  // of the ranks, which share out requests
    DeviceKind device = DeviceKind::Cpu;
  };
  explicit HeadSubject(const Setup& s) {
    limits = {16, 90, 6, 420};
    longest_answer = 60;
    testing_support::HeadSetup with{.model = s.model, .head = s.model, .dtype = DType::BF16, .pages = limits.pages};
    with.chunk = limits.tokens, with.rows = limits.rows, with.context = limits.context;
    with.device = s.device;
    testing_support::HeadSetup alone = with;
    alone.head.clear(), alone.pages = 4, alone.policy = engine::GraphPolicy::Off;
    if (s.mode == "eager") with.policy = engine::GraphPolicy::Off;
    with.parts = s.parts;
    if (s.mode != "eager") with.decode = with.prefill = s.mode == "whole" ? GraphMode::Whole : GraphMode::Piecewise;
    if (s.ranks > 1) {
      auto world = engine::LocalWorld::start(s.ranks, [with](std::shared_ptr<ranks::Member> member) {
        testing_support::HeadSetup mine = with;
        mine.member = std::move(member);
        return testing_support::open_with_head(mine);
      });
      EXPECT_TRUE(world.is_ok()) << world.status().message();
      if (world.is_ok()) world_ = std::move(*world);
      if (world_ && s.parts > 1) shared_ = std::make_unique<engine::SharedStep>(world_->front());
    } else {
      engine_ = open(with);
    }
    alone_ = open(alone);
    if (!is_open()) return;
    limits.pages = executor().kv_pool().free_pages();
    vocab = static_cast<int32_t>(executor().vocab_size());
    eos.clear();
    for (int32_t t = 7; t < vocab; t += 29) eos.push_back(t);
  }
  ~HeadSubject() override {
    if (alone_) alone_->release(history_);
  }
  bool is_open() const { return (world_ || engine_) && alone_; }
  engine::Executor& executor() override {
    if (shared_) return shared_->part(0);
    return world_ ? world_->front() : *engine_;
  }
  std::vector<engine::Executor*> parts() override {
    std::vector<engine::Executor*> all;
    for (int part = 0; shared_ && part < shared_->parts(); ++part) all.push_back(&shared_->part(part));
    return shared_ ? all : Subject::parts();
  }
  int64_t most_running() const override { return 4; }  // of the rows of a step; the others are for drafts
  engine::Executor* alone() override {
    alone_->release(history_);
    history_ = engine::Sequence(Tokens{});
    return alone_.get();
  }

  std::vector<float> logits_of(std::span<const int32_t> history) override {
    return logits_by(*alone_, history_, history, limits.tokens, vocab);
  }
  testing_support::Foresight foresight() override {
    return [this](std::span<const int32_t> history, int64_t most) {
      Tokens text(history.begin(), history.end());
      most = std::min(most, limits.context - static_cast<int64_t>(text.size()));
      for (int64_t i = 0; i < most; ++i) {
        const auto row = logits_of(text);
        text.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      }
      return Tokens(text.begin() + static_cast<ptrdiff_t>(history.size()), text.end());
    };
  }

 private:
  static std::unique_ptr<engine::Engine> open(const testing_support::HeadSetup& s) {
    auto e = testing_support::open_with_head(s);
    EXPECT_TRUE(e.is_ok()) << e.status().message();
    return e.is_ok() ? std::move(*e) : nullptr;
  }

  std::unique_ptr<engine::LocalWorld> world_;
  std::unique_ptr<engine::SharedStep> shared_;  // of a world in parts
  std::unique_ptr<engine::Engine> engine_, alone_;
  engine::Sequence history_{Tokens{}};
};

}  // namespace reprise::sched
