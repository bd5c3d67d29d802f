// The scheduler with drafts that come true for any number of tokens, over any course of requests: what each request
// gets is what it gets alone. The executor's keys are tokens and its states hashes of them (support/fake_executor.h),
// so a key or a state of a rejected draft that is ever read changes a token. Drafts are the true text up to where the
// input says, those of a second model whose pool is small and whose steps may fail, or those of n-grams. Courses
// without drafts submit several steps at once, of which one may fail.
#include <map>
#include <memory>

#include "base/check.h"
#include "base/log.h"
#include "sched/model_drafter.h"
#include "sched/scheduler.h"
#include "support/answers.h"

namespace {

using namespace reprise;
using sched::Answer;
using sched::FakeExecutor;
using sched::Tokens;

struct Input {
  const uint8_t* at;
  const uint8_t* end;
  int64_t next(int64_t below) { return at < end ? *at++ % below : 0; }
};

// The true text for as many tokens as the input says, and then another.
class InputDrafter final : public spec::Drafter {
 public:
  explicit InputDrafter(Input& in) : in_(in) {}
  void begin(const spec::Start&) override {}
  void judged(uint64_t, int64_t verified, int64_t accepted) override { CHECK(accepted <= verified); }
  void end(uint64_t, std::span<const int32_t>) override {}
  void propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override {
    for (size_t i = 0; i < wishes.size(); ++i) {
      const auto most = static_cast<size_t>(in_.next(wishes[i].most + 1)), good = static_cast<size_t>(in_.next(9));
      out[i].clear();
      out[i].tokens =
          sched::expected({wishes[i].tokens.begin(), wishes[i].tokens.end()}, static_cast<int64_t>(most), true);
      if (good < most) out[i].tokens[good] = (out[i].tokens[good] + 1) % FakeExecutor::kVocab;
      out[i].survival.assign(most, 0.5f);
    }
  }

 private:
  Input& in_;
};

struct One {
  sched::RequestId id;
  Tokens prompt;
  int64_t most;
  std::shared_ptr<Answer> answer;
};

class Course {
 public:
  explicit Course(Input in) : in_(in) {
    const int64_t rows = 2 + in_.next(8);
    limits_ = {rows, rows + in_.next(200), 3 + in_.next(6), 150 + in_.next(250)};
    limits_.state_drafts = in_.next(2) * (1 + in_.next(7));
    executor_ = std::make_unique<FakeExecutor>(limits_);
    executor_->greedy_steps = in_.next(3) != 0;
    executor_->runs_beside = in_.next(2) != 0;
    options_.log_failures = false;
    options_.prefix_cache = in_.next(4) != 0;
    options_.mixed_prefill_tokens = 1 + in_.next(64);
    options_.speculation.adaptive = false;
    options_.speculation.draft_tokens = 2 + in_.next(10);
    if (in_.next(2) == 0) options_.preemption_threshold = 0;
    choose_drafter();
    scheduler_ = std::make_unique<sched::Scheduler>(*executor_, options_);
  }

  void run() {
    while (in_.at < in_.end) {
      switch (in_.next(8)) {
        case 0:
        case 1: add(); break;
        case 2:
          if (!asked_.empty()) scheduler_->cancel(asked_[static_cast<size_t>(in_.next(size()))].id);
          break;
        case 3:
          if (in_.next(8) == 0) scheduler_->flush_cache();
          break;
        default: step();
      }
    }
    for (int i = 0; !scheduler_->idle(); ++i) {
      CHECK(i < 20000, "requests do not end");
      step();
    }
    for (const One& one : asked_) check(one);
    scheduler_->flush_cache();
    CHECK(executor_->kv_pool().free_pages() == limits_.pages, "pages are lost");
    CHECK(!executor_->kept_states() || executor_->kept_states()->kept() == 0, "states are lost");
  }

 private:
  void choose_drafter() {
    const int64_t kind = in_.next(6);
    if (kind > 3) return choose_runs();
    if (kind == 0) {
      options_.speculation.algorithm = spec::Algorithm::Ngram;
      options_.speculation.shortest_match = 1;
      return;
    }
    if (kind < 3) {
      options_.drafter = [this] { return std::make_unique<InputDrafter>(in_); };
      return;
    }
    const int64_t rows = 2 + in_.next(6), tokens = 8 + in_.next(100), pages = 2 + in_.next(8);
    draft_ = std::make_unique<FakeExecutor>(FakeExecutor::Limits{.rows = rows, .tokens = tokens, .pages = pages});
    draft_->runs_beside = executor_->runs_beside;  // both on one device
    if (in_.next(4) == 0) draft_->fail_at = in_.next(60);
    const sched::ModelDrafterOptions how{1 + in_.next(6), 1 + in_.next(50), in_.next(4) != 0};
    options_.drafter = [this, how] {
      auto made = std::make_unique<sched::ModelDrafter>(*draft_, how);
      draft_model_ = made.get();
      return made;
    };
  }

  void choose_runs() {
    runs_ = true;
    if (!executor_->has_states()) executor_->in_flight_limit = 2 + in_.next(8);
    options_.overlap = in_.next(4) != 0;
    if (in_.next(4) != 0) return;
    may_fail_ = true;
    (in_.next(2) == 0 ? executor_->fail_at : executor_->spoil_at) = 1 + in_.next(200);
  }

  int64_t size() const { return static_cast<int64_t>(asked_.size()); }

  void step() {
    scheduler_->step();
    const Status ok = scheduler_->check_integrity();
    CHECK(ok.is_ok(), "{}", ok.message());
    if (!draft_model_) return;
    const Status whole = draft_model_->check_integrity();
    CHECK(whole.is_ok(), "{}", whole.message());
  }

  // A prompt begins like another one, up to anywhere.
  void add() {
    if (size() == 12) return;
    Tokens prompt;
    if (!asked_.empty()) {
      const One& old = asked_[static_cast<size_t>(in_.next(size()))];
      prompt = old.prompt;
      if (in_.next(2) == 0) prompt.insert(prompt.end(), old.answer->tokens.begin(), old.answer->tokens.end());
      prompt.resize(prompt.size() * static_cast<size_t>(in_.next(17)) / 16);
    }
    for (int64_t n = in_.next(4) == 0 ? in_.next(256) : in_.next(16); n >= 0; --n)
      prompt.push_back(static_cast<int32_t>((n * n + size()) % FakeExecutor::kVocab));
    One one{0, prompt, 1 + in_.next(90), {}};
    auto a = sched::ask(std::move(prompt), one.most);
    a.request.sampling.ignore_eos = true;
    a.request.priority = in_.next(3);
    a.request.several = in_.next(3) == 0;
    if (in_.next(4) == 0) a.request.cache_salt = "salt";
    if (runs_ && in_.next(4) == 0) a.answer->stop_after = 1 + in_.next(40);  // what only the host knows
    one.answer = a.answer;
    const auto id = scheduler_->add(std::move(a.request));
    if (!id.is_ok()) return;  // it is too long for the context, or for the pool
    one.id = *id;
    asked_.push_back(std::move(one));
  }

  void check(const One& one) const {
    CHECK(one.answer->times_finished == 1);
    const auto length = static_cast<int64_t>(one.prompt.size());
    int64_t most = std::min({one.most, limits_.context - length, limits_.pages * kv::kPageTokens - length + 1});
    if (one.answer->stop_after > 0) most = std::min(most, one.answer->stop_after);
    Tokens want = sched::expected(one.prompt, most, true);
    const sched::RequestResult& result = *one.answer->result;
    CHECK(may_fail_ || result.status.is_ok() || result.status.code() == Code::Cancelled, "request {}: {}", one.id,
          result.status.message());
    if (result.finish == sched::FinishReason::Cancelled) want.resize(std::min(want.size(), one.answer->tokens.size()));
    CHECK(one.answer->tokens == want, "request {} of {} tokens has another answer", one.id, length);
  }

  Input in_;
  FakeExecutor::Limits limits_;
  sched::SchedulerOptions options_;
  bool runs_ = false, may_fail_ = false;
  std::unique_ptr<FakeExecutor> executor_, draft_;
  const sched::ModelDrafter* draft_model_ = nullptr;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::vector<One> asked_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  log::set_level(log::Level::Error);
  GTEST_FLAG_SET(break_on_failure, true);  // of what the executor expects
  Course({data, data + size}).run();
  return 0;
}
