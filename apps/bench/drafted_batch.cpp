#include "bench/drafted_batch.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "base/elapsed.h"
#include "sched/scheduler.h"

namespace reprise::apps {
namespace {

// The times of a run's steps: those that read prompts, and those that decode. The device's own, where that is modelled:
// from the end of the step before, which contains what the host did in between.
class StepTimes final : public sched::Observer {
 public:
  explicit StepTimes(const Device& device) : device_(device), last_(device.clock_us()) {}

  void stepped(const sched::StepRecord& step) override {
    double s = seconds_of(step.end - step.begin);
    if (last_) {
      const double now = *device_.clock_us();
      s = (now - *last_) * 1e-6;
      last_ = now;
    }
    if (step.prefill_tokens > 0)
      prefill_s += s;
    else
      decode_s.push_back(s);
  }
  double prefill_s = 0;
  std::vector<double> decode_s;

 private:
  const Device& device_;
  std::optional<double> last_;
};

// Where kernels compute nothing, the same token comes again and again: it is drafted, so that every step has as many
// drafts as it may, and each comes true.
class SameToken final : public spec::Drafter {
 public:
  void begin(const spec::Start&) override {}
  void propose(std::span<const spec::Wish> wishes, std::span<spec::Proposal> out) override {
    for (size_t i = 0; i < wishes.size(); ++i) {
      out[i].clear();
      out[i].tokens.assign(static_cast<size_t>(wishes[i].most), wishes[i].tokens.back());
      out[i].survival.assign(out[i].tokens.size(), 1.0f);
    }
  }
  void judged(uint64_t, int64_t, int64_t) override {}
  void end(uint64_t, std::span<const int32_t>) override {}
};

class NoSink final : public sched::RequestSink {
 public:
  explicit NoSink(Status& failed) : failed_(failed) {}
  bool token(const engine::SampledToken&, sched::FinishReason) override { return true; }
  void finished(const sched::RequestResult& result) override {
    if (failed_.is_ok()) failed_ = result.status;
  }

 private:
  Status& failed_;
};

}  // namespace

Result<OneBatchRow> measure_drafted_batch(engine::Engine& engine, const OneBatch& plan, int64_t batch_size,
                                          Progress& bar) {
  std::vector<double> prefill, decode, steps, step_counts, host;
  uint64_t drafts = 0, accepted = 0;
  for (int64_t r = 0; r < plan.repeat; ++r) {
    StepTimes times(engine.device());
    Status failed;
    sched::SchedulerOptions o;
    o.max_queued = std::numeric_limits<int64_t>::max() / 2;
    o.mixed_prefill_tokens = o.max_prefill_tokens = engine.max_step_tokens();
    o.prefix_cache = false;
    o.speculation = plan.speculation;
    if (!engine.device().info().computes) o.drafter = [] { return std::make_unique<SameToken>(); };
    sched::Scheduler scheduler(engine, o, &times);
    const uint64_t seed = plan.seed + static_cast<uint64_t>(r);
    uint64_t place = 0;
    for (auto& prompt : random_prompts(engine, batch_size, plan.input_len, seed)) {
      sched::Request request;
      request.prompt = std::move(prompt);
      request.sampling.max_new_tokens = plan.output_len;
      request.sampling.ignore_eos = true;
      request.sampling.temperature = plan.temperature;
      request.sampling.seed = seed + ++place;
      request.sink = std::make_unique<NoSink>(failed);
      RETURN_IF_ERROR(scheduler.add(std::move(request)).status());
    }
    const auto before = engine.counters();
    while (!scheduler.idle()) scheduler.step();
    scheduler.settle();
    RETURN_IF_ERROR(failed);
    const auto after = engine.counters();
    double sum = 0;
    for (const double s : times.decode_s) {
      sum += s;
      steps.push_back(s * 1e3);
    }
    prefill.push_back(times.prefill_s);
    decode.push_back(sum);
    step_counts.push_back(static_cast<double>(times.decode_s.size()));
    host.push_back((after.host_s - before.host_s) / static_cast<double>(after.steps - before.steps) * 1e6);
    const sched::SpeculationStats s = scheduler.stats().speculation;
    drafts += s.draft_tokens;
    accepted += s.accepted_tokens;
    bar.advance(1, fmt::format("batch {}", batch_size));
  }
  OneBatchRow row{batch_size,           quantile(prefill, 0.5), quantile(decode, 0.5),
                  quantile(steps, 0.5), quantile(steps, 0.99),  quantile(host, 0.5)};
  row.decode_steps = quantile(step_counts, 0.5);
  row.tokens_per_step = row.decode_steps > 0 ? static_cast<double>(plan.output_len - 1) / row.decode_steps : 0;
  row.draft_tokens = static_cast<int64_t>(drafts);
  row.accepted_tokens = static_cast<int64_t>(accepted);
  return row;
}

}  // namespace reprise::apps
