#include "measurement/drafted_batch.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include "base/elapsed.h"
#include "measurement/known_text.h"
#include "sched/scheduler.h"

namespace reprise::measurement {
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

class AnswerSink final : public sched::RequestSink {
 public:
  AnswerSink(Status& failed, std::vector<int32_t>& text) : failed_(failed), text_(text) {}
  bool token(const engine::SampledToken& token, sched::FinishReason) override {
    text_.push_back(token.token);
    return true;
  }
  void finished(const sched::RequestResult& result) override {
    if (failed_.is_ok()) failed_ = result.status;
  }

 private:
  Status& failed_;
  std::vector<int32_t>& text_;
};

struct BatchRun {
  explicit BatchRun(const Device& device) : times(device) {}

  StepTimes times;
  KnownText::Texts texts;  // as the scheduler numbers requests
  sched::SpeculationStats drafts;
  double host_us = 0;  // of a step
  double decode_s() const { return std::accumulate(times.decode_s.begin(), times.decode_s.end(), 0.0); }
};

// One batch to its end. Drafts: of `o.speculation`, or of `o.drafter`.
Status run_batch(engine::Engine& engine, sched::SchedulerOptions o, const OneBatch& plan, int64_t batch_size,
                 uint64_t seed, BatchRun& run) {
  Status failed;
  o.max_queued = std::numeric_limits<int64_t>::max() / 2;
  o.mixed_prefill_tokens = o.max_prefill_tokens = engine.max_step_tokens();
  o.prefix_cache = false;
  sched::Scheduler scheduler(engine, o, &run.times);
  uint64_t place = 0;
  for (auto& prompt : random_prompts(engine, batch_size, plan.input_len, seed)) {
    sched::Request request;
    ++place;
    std::vector<int32_t>& text = run.texts[o.first_id + (place - 1) * o.id_step];
    text = prompt;
    request.prompt = std::move(prompt);
    request.sampling.max_new_tokens = plan.output_len;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = plan.temperature;
    request.sampling.seed = seed + place;
    request.sink = std::make_unique<AnswerSink>(failed, text);
    RETURN_IF_ERROR(scheduler.add(std::move(request)).status());
  }
  const auto before = engine.counters();
  while (!scheduler.idle()) scheduler.step();
  scheduler.complete_in_flight();
  RETURN_IF_ERROR(failed);
  const auto after = engine.counters();
  run.host_us = (after.host_s - before.host_s) / static_cast<double>(after.steps - before.steps) * 1e6;
  run.drafts = scheduler.stats().speculation;
  return Status::ok();
}

// Every answer is the one without drafts.
Status check_answers(const KnownText::Texts& plain, const KnownText::Texts& drafted) {
  for (const auto& [id, text] : plain) {
    const auto& other = drafted.at(id);
    const auto [a, b] = std::mismatch(text.begin(), text.end(), other.begin(), other.end());
    if (a != text.end() || b != other.end())
      return error(Code::Internal, "prompt {}: with drafts the answer differs from token {} of prompt and answer on",
                   id, a - text.begin());
  }
  return Status::ok();
}

}  // namespace

Result<OneBatchRow> measure_drafted_batch(engine::Engine& engine, const OneBatch& plan, int64_t batch_size,
                                          Progress& bar) {
  std::vector<double> prefill, decode, plain, steps, step_counts, host;
  sched::SpeculationStats all;
  for (int64_t r = 0; r < plan.repeat; ++r) {
    const uint64_t seed = plan.seed + static_cast<uint64_t>(r);
    sched::SchedulerOptions o;
    BatchRun without(engine.device());
    if (plan.acceptance) {
      RETURN_IF_ERROR(run_batch(engine, o, plan, batch_size, seed, without));
      plain.push_back(without.decode_s());
      o.drafter = [&] {
        return std::make_unique<KnownText>(without.texts, *plan.acceptance, engine.vocab_size(), seed);
      };
    } else if (!engine.device().info().computes) {
      o.drafter = [] { return std::make_unique<SameToken>(); };
    }
    o.speculation = plan.speculation;
    BatchRun run(engine.device());
    RETURN_IF_ERROR(run_batch(engine, o, plan, batch_size, seed, run));
    // Elsewhere steps of one row and of several may round otherwise, so answers may part at a near tie.
    if (plan.acceptance && engine.device().info().row_invariant)
      RETURN_IF_ERROR(check_answers(without.texts, run.texts));
    for (const double s : run.times.decode_s) steps.push_back(s * 1e3);
    prefill.push_back(run.times.prefill_s);
    decode.push_back(run.decode_s());
    step_counts.push_back(static_cast<double>(run.times.decode_s.size()));
    host.push_back(run.host_us);
    all += run.drafts;
    bar.advance(1, fmt::format("batch {}", batch_size));
  }
  OneBatchRow row{batch_size,           quantile(prefill, 0.5), quantile(decode, 0.5),
                  quantile(steps, 0.5), quantile(steps, 0.99),  quantile(host, 0.5)};
  row.decode_steps = quantile(step_counts, 0.5);
  row.tokens_per_step = row.decode_steps > 0 ? static_cast<double>(plan.output_len - 1) / row.decode_steps : 0;
  row.draft_tokens = static_cast<int64_t>(all.draft_tokens);
  row.accepted_tokens = static_cast<int64_t>(all.accepted_tokens);
  row.accepted_at = all.places.accepted;
  row.accepted_at.resize(static_cast<size_t>(plan.speculation.draft_tokens - 1));
  row.drafted_steps = static_cast<int64_t>(all.drafts);
  row.plain_decode_s = quantile(plain, 0.5);
  row.same_answers = plan.acceptance && engine.device().info().row_invariant;
  return row;
}

}  // namespace reprise::measurement
