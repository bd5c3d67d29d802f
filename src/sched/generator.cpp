#include "sched/generator.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "base/elapsed.h"

namespace reprise::sched {
namespace {

// Everything that runs was there from the beginning, so no request waits for a token while prompts are read at full
// width.
SchedulerOptions options_of(const engine::Executor& executor, const GeneratorOptions& given) {
  SchedulerOptions o;
  o.max_queued = std::numeric_limits<int64_t>::max() / 2;
  o.mixed_prefill_tokens = o.max_prefill_tokens = executor.max_step_tokens();
  o.prefix_cache = given.prefix_cache;
  o.speculation = given.speculation;
  o.log_failures = false;
  o.eos_tokens = given.eos_tokens;
  return o;
}

// State of one run().
struct Collected {
  std::vector<GenerationResult> results;
  const TokenSink& sink;
  Clock::time_point begin = Clock::now();
  Status failed = Status::ok();  // the first failure
};

class CollectingSink final : public RequestSink {
 public:
  CollectingSink(Collected& all, size_t index, bool keep_sampled)
      : all_(all), index_(index), keep_sampled_(keep_sampled) {}

  bool token(const SampledToken& token, FinishReason finish) override {
    GenerationResult& r = all_.results[index_];
    if (r.tokens.empty()) r.ttft_s = seconds_since(all_.begin);
    r.tokens.push_back(token.token);
    if (keep_sampled_) r.sampled.push_back(token);
    return !all_.sink || all_.sink({index_, token, finish});
  }
  void finished(const RequestResult& result) override {
    GenerationResult& r = all_.results[index_];
    r.finish = result.finish;
    r.cached_tokens = result.cached_tokens;
    if (result.status.is_ok() || !all_.failed.is_ok()) return;
    all_.failed = all_.results.size() == 1
                      ? result.status
                      : result.status.at(fmt::format("request {}, token {}", index_, r.tokens.size()));
  }

 private:
  Collected& all_;
  size_t index_;
  bool keep_sampled_;
};

}  // namespace

void Generator::StepTimes::stepped(const StepRecord& step) {
  const bool prefill = step.prefill_tokens > 0;
  const double s = seconds_of(step.end - step.begin);
  (prefill ? times.prefill_s : times.decode_s) += s;
  (prefill ? times.prefill_tokens : times.decode_tokens) +=
      step.prefill_tokens + step.decode_tokens + step.accepted_tokens;
  (prefill ? times.prefill_steps : times.decode_steps) += 1;
}

Generator::Generator(engine::Executor& executor, GeneratorOptions options)
    : executor_(executor), adapter_(options.adapter), scheduler_(executor, options_of(executor, options), &steps_) {}

Status Generator::check(const Request& request) const {
  RETURN_IF_ERROR(scheduler_.check(request));
  // The last token that is generated needs no place in the cache.
  const auto size = static_cast<int64_t>(request.prompt.size());
  const int64_t more = std::min(request.sampling.max_new_tokens, executor_.context_length() - size);
  const int64_t pages = kv::pages_for(size + more - 1), have = executor_.kv_pool().total_pages();
  if (pages <= have) return Status::ok();
  return error(Code::OutOfMemory,
               "{} prompt tokens and {} new ones need {} KV pages of {} tokens, but the pool has {}; ask for fewer "
               "new tokens or give the pool more (max_total_tokens, mem_fraction_static)",
               size, more, pages, kv::kPageTokens, have);
}

Result<std::vector<GenerationResult>> Generator::run(std::span<const GenerationRequest> requests,
                                                     const TokenSink& sink) {
  steps_.times = {};
  Collected all{std::vector<GenerationResult>(requests.size()), sink};
  std::vector<Request> made;
  for (size_t i = 0; i < requests.size(); ++i) {
    Request r;
    r.prompt = requests[i].prompt;
    r.images = requests[i].images;
    r.sampling = requests[i].sampling;
    r.adapter = adapter_;
    r.sink = std::make_unique<CollectingSink>(all, i, r.sampling.logprobs >= 0);
    if (Status ok = check(r); !ok.is_ok()) return requests.size() == 1 ? ok : ok.at(fmt::format("request {}", i));
    made.push_back(std::move(r));
  }
  for (Request& r : made) RETURN_IF_ERROR(scheduler_.add(std::move(r)).status());
  while (!scheduler_.idle()) {
    if (!all.failed.is_ok()) scheduler_.cancel_all();
    scheduler_.step();
  }
  scheduler_.complete_in_flight();
  RETURN_IF_ERROR(all.failed);
  return std::move(all.results);
}

}  // namespace reprise::sched
