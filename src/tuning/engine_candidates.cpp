#include "tuning/engine_candidates.h"

#include <algorithm>

#include "base/kv_page.h"
#include "measurement/machine_probe.h"
#include "measurement/one_batch.h"

namespace reprise::tuning {
namespace {

constexpr int64_t kRepeats = 3;
constexpr double kForPages = 0.85;  // of free memory, less weights and activations

}  // namespace

Result<std::unique_ptr<engine::Engine>> EngineCandidates::open(const Candidate& c, int64_t batch) const {
  api::ModelSettings s = settings_;
  if (c.threads > 0) s.threads = c.threads;
  if (c.chunk > 0) s.chunked_prefill_size = c.chunk;
  s.max_running_requests = std::max(s.max_running_requests, batch);
  return api::open_engine(s, notices_);
}

Result<CandidateSpeed> EngineCandidates::measure(const Candidate& c, int64_t batch, int64_t input,
                                                 int64_t output) const {
  ASSIGN_OR_RETURN(const auto engine, open(c, batch));
  measurement::OneBatch plan;
  plan.input_len = input;
  plan.output_len = output;
  plan.repeat = 1;
  Progress none("", 1, false);
  RETURN_IF_ERROR(measurement::measure_one_batch(*engine, plan, batch, none).status());
  plan.repeat = kRepeats;
  ASSIGN_OR_RETURN(const measurement::OneBatchRow row, measurement::measure_one_batch(*engine, plan, batch, none));
  const auto tokens = static_cast<double>(batch);
  return CandidateSpeed{tokens * static_cast<double>(input) / row.prefill_s,
                        tokens * static_cast<double>(output - 1) / row.decode_s};
}

Result<TuneBounds> EngineCandidates::bounds() const {
  ASSIGN_OR_RETURN(const auto engine, open({}, 1));
  const DeviceInfo& info = engine->device().info();
  TuneBounds b;
  b.processors = measurement::describe_machine().threads;
  b.threads_matter = info.kind == DeviceKind::Cpu;
  b.live_sizes = info.live_sizes;
  b.context_length = engine->context_length();
  b.page_tokens = kPageTokens;
  const engine::MemoryReport memory = engine->memory();
  const auto free = static_cast<double>(info.free_bytes ? info.free_bytes : info.memory_bytes);
  const double room = kForPages * free - static_cast<double>(memory.weight_bytes + memory.activation_bytes);
  if (free > 0 && memory.kv_page_bytes > 0)
    b.most_cached_tokens =
        std::max<int64_t>(1, static_cast<int64_t>(room / static_cast<double>(memory.kv_page_bytes))) * b.page_tokens;
  return b;
}

Result<Tuning> tune_model(const EngineCandidates& candidates, const TrafficProfile& traffic) {
  ASSIGN_OR_RETURN(const TuneBounds bounds, candidates.bounds());
  if (const int64_t longest = std::max(traffic.prompt.usual, traffic.prompt.large); longest >= bounds.context_length)
    return invalid("prompts of {} tokens; the context length is {}", longest, bounds.context_length);
  Progress bar("tuning", tune_steps(traffic, bounds));
  const auto measure = [&](const Candidate& c, int64_t batch, int64_t input, int64_t output) {
    return candidates.measure(c, batch, input, output);
  };
  return tune(traffic, bounds, measure, bar);
}

}  // namespace reprise::tuning
