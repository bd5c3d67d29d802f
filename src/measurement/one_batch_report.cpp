#include "measurement/one_batch_report.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "measurement/drafted_batch.h"
#include "measurement/step_cost.h"
#include "see/graph_report.h"
#include "see/node_cost.h"

namespace reprise::measurement {

Result<std::vector<OneBatchRow>> measure_batches(engine::Engine& engine, const OneBatch& plan,
                                                 std::span<const int64_t> batch_sizes) {
  const bool wanted = plan.speculation.algorithm != spec::Algorithm::None;
  const bool drafts = wanted && engine.max_verify_rows() > 0;
  if (wanted && !drafts)
    log::notice("no drafts (`speculative_algorithm` {} is off): {}", spec::algorithm_name(plan.speculation.algorithm),
                engine.verify_refusal());
  Progress bar("bench", batch_sizes.size() * static_cast<uint64_t>(plan.repeat));
  const auto measure = drafts ? measure_drafted_batch : measure_one_batch;
  OneBatch warm = plan;
  warm.repeat = 1;
  warm.output_len = std::min<int64_t>(plan.output_len, 4);
  Progress none("", 1, false);
  RETURN_IF_ERROR(measure(engine, warm, batch_sizes[0], none).status());
  std::vector<OneBatchRow> rows;
  for (const int64_t batch_size : batch_sizes) {
    ASSIGN_OR_RETURN(OneBatchRow row, measure(engine, plan, batch_size, bar));
    rows.push_back(std::move(row));
  }
  return rows;
}

OrderedJson one_batch_json(engine::Engine& engine, const OneBatch& plan, const OneBatchRow& r,
                           const MachineSpeed& limits, const RowSettings& settings) {
  const double batch = static_cast<double>(r.batch_size), input = static_cast<double>(plan.input_len);
  const double steps = static_cast<double>(plan.output_len - 1);
  const double weight_bytes = step_weight_bytes(engine, batch);
  // The step that makes token i + 1 reads the keys and values of input + i tokens.
  const double kv_bytes = batch * (input + (steps + 1) / 2) * static_cast<double>(engine.kv_bytes_per_token());
  const double gbps = r.decode_s > 0 ? (weight_bytes + kv_bytes) * r.decode_steps / r.decode_s / 1e9 : 0;
  const auto& c = engine.config();
  const double operations = 2 * batch * (input * layer_weights(c) + static_cast<double>(c.hidden_size * c.vocab_size));
  const double gflops = r.prefill_s > 0 ? operations / r.prefill_s / 1e9 : 0;
  // Modelled time is another machine's: this one's limits say nothing about it. Nor do limits of a busy machine.
  const bool modelled = engine.device().clock_us().has_value();
  const auto share = [none = modelled || limits.disturbed()](double v, double of) {
    return none || of <= 0 ? OrderedJson(nullptr) : OrderedJson(v / of * 100);
  };
  OrderedJson j;
  j["batch_size"] = r.batch_size;
  j["input_len"] = plan.input_len;
  j["output_len"] = plan.output_len;
  if (plan.temperature > 0) j["temperature"] = plan.temperature;
  j["graph"] = see::phase_mode(engine.runner("decode"));
  j["passes"] = settings.passes;
  j["prefill_tok_s"] = r.prefill_s > 0 ? batch * input / r.prefill_s : 0;
  j["decode_tok_s"] = r.decode_s > 0 ? batch * steps / r.decode_s : 0;
  j["step_ms_p50"] = r.step_ms_p50;
  j["step_ms_p99"] = r.step_ms_p99;
  if (plan.speculation.algorithm != spec::Algorithm::None) {
    j["speculative"] = spec::algorithm_name(plan.speculation.algorithm);
    j["tokens_per_step"] = r.tokens_per_step;
    j["draft_tokens"] = r.draft_tokens;
    j["accepted_tokens"] = r.accepted_tokens;
    j["accepted_per_position"] = r.accepted_at;
    j["drafts"] = r.drafted_steps;
  }
  if (plan.acceptance && r.plain_decode_s > 0) {
    j["synthetic_acceptance"] = *plan.acceptance;
    j["same_answers"] = r.same_answers;
    j["plain_decode_tok_s"] = batch * steps / r.plain_decode_s;
    j["speed_up"] = r.decode_s > 0 ? r.plain_decode_s / r.decode_s : 0;
  }
  j["host_us"] = r.host_us;
  j["gap_us"] = r.gap_us;
  if (settings.ranks) {
    j["ranks"] = *settings.ranks;
    j["rank_wait_us"] = r.rank_wait_us;
  }
  j["weight_bytes"] = static_cast<int64_t>(weight_bytes);
  j["kv_bytes"] = static_cast<int64_t>(kv_bytes);
  j["achieved_GBps"] = gbps;
  j["achieved_GFLOPs"] = gflops;
  j["pct_bandwidth"] = share(gbps, limits.read_GBps_all);
  j["pct_peak"] = share(gflops, peak_gflops(limits, multiplied(engine)));
  return j;
}

OrderedJson limits_json(Machine machine, const MachineSpeed& before, const MachineSpeed& after) {
  const double low = std::min(before.read_GBps_all, after.read_GBps_all);
  if (low < 0.8 * std::max(before.read_GBps_all, after.read_GBps_all))
    machine.warnings.push_back(
        fmt::format("memory bandwidth was {:.1f} GB/s before and {:.1f} after the run: shares of it mean little",
                    before.read_GBps_all, after.read_GBps_all));
  OrderedJson j = machine_json(machine, between(before, after));
  for (const auto& [name, speed] : {std::pair{"before", before}, std::pair{"after", after}}) {
    OrderedJson one = machine_json({}, speed);
    for (const char* key : {"cpu", "isa", "order", "threads", "devices", "warnings"}) one.erase(key);
    j[name] = std::move(one);
  }
  return j;
}

}  // namespace reprise::measurement
