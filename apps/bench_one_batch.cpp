// `reprise bench one-batch`: one batch of random prompts through the model, timed step by step, beside what the machine
// can do at best (measured in the same run, before and after).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "base/progress.h"
#include "command.h"
#include "common/flags.h"
#include "common/machine_probe.h"
#include "common/model_flags.h"
#include "common/terminal.h"
#include "engine/engine.h"

namespace reprise::apps {
namespace {

using engine::Engine;
using engine::Sequence;
using engine::StepItem;
using Clock = std::chrono::steady_clock;

struct BenchFlags {
  ModelFlags model;
  std::vector<int64_t> batch_sizes{1};
  int64_t input_len = 512;
  int64_t output_len = 64;
  int64_t repeat = 3;
  bool json = false;
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}

// The sequences of one repeat; their pages go back to the pool at the end.
class Batch {
 public:
  Batch(Engine& engine, int64_t size, int64_t input_len, uint64_t seed) : engine_(engine), prompt_len_(input_len) {
    std::mt19937_64 random(seed);
    const auto vocab = static_cast<uint64_t>(engine.config().vocab_size);
    for (int64_t i = 0; i < size; ++i) {
      std::vector<int32_t> prompt(static_cast<size_t>(input_len));
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab);
      sequences_.push_back(std::make_unique<Sequence>(prompt));
    }
  }
  ~Batch() {
    for (auto& s : sequences_) engine_.release(*s);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Status reserve(int64_t tokens) {
    for (auto& s : sequences_) RETURN_IF_ERROR(engine_.reserve(*s, tokens));
    return Status::ok();
  }
  // Every prompt, packed into steps, up to the first token of each.
  Status prefill() {
    while (sequences_.back()->cached() < prompt_len_) {
      int64_t room = engine_.max_step_tokens();
      std::vector<StepItem> items;
      std::vector<size_t> who;
      for (size_t i = 0; i < sequences_.size() && room > 0; ++i) {
        const int64_t left = prompt_len_ - sequences_[i]->cached();
        if (left <= 0) continue;
        const int64_t count = std::min(room, left);
        items.push_back({sequences_[i].get(), count, count == left});
        who.push_back(i);
        room -= count;
      }
      RETURN_IF_ERROR(step(items, who));
    }
    return Status::ok();
  }
  Status decode() {
    std::vector<StepItem> items;
    std::vector<size_t> who;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      items.push_back({sequences_[i].get(), 1, true});
      who.push_back(i);
    }
    return step(items, who);
  }

 private:
  Status step(const std::vector<StepItem>& items, const std::vector<size_t>& who) {
    ASSIGN_OR_RETURN(std::span<const int32_t> next, engine_.step_greedy(items));
    size_t row = 0;
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].wants_logits) sequences_[who[i]]->append(next[row++]);
    return Status::ok();
  }

  Engine& engine_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int64_t prompt_len_;
};

struct Row {
  int64_t batch_size = 0;
  double prefill_s = 0, decode_s = 0;  // medians of the repeats; of all decode steps together
  double step_ms_p50 = 0, step_ms_p99 = 0;
  double host_us = 0;  // of a decode step, outside the device
};

Result<Row> measure(Engine& engine, const BenchFlags& f, int64_t batch_size, Progress& bar) {
  std::vector<double> prefill, decode, steps, host;
  for (int64_t r = 0; r < f.repeat; ++r) {
    Batch batch(engine, batch_size, f.input_len, static_cast<uint64_t>(f.model.random_seed + r));
    RETURN_IF_ERROR(batch.reserve(f.input_len + f.output_len - 1));
    auto begin = Clock::now();
    RETURN_IF_ERROR(batch.prefill());
    prefill.push_back(seconds_since(begin));
    double sum = 0;
    const auto before = engine.counters();
    for (int64_t i = 1; i < f.output_len; ++i) {
      begin = Clock::now();
      RETURN_IF_ERROR(batch.decode());
      const double s = seconds_since(begin);
      sum += s;
      steps.push_back(s * 1e3);
    }
    decode.push_back(sum);
    const auto after = engine.counters();
    if (after.steps > before.steps)
      host.push_back((after.host_s - before.host_s) / static_cast<double>(after.steps - before.steps) * 1e6);
    bar.advance(1, fmt::format("batch {}", batch_size));
  }
  return Row{batch_size,           quantile(prefill, 0.5), quantile(decode, 0.5),
             quantile(steps, 0.5), quantile(steps, 0.99),  quantile(host, 0.5)};
}

// Weights of the layers' matrix products that one token goes through: of experts those that it is sent to. The head
// works on one row per sequence and is counted apart.
double layer_weights(const checkpoint::ModelConfigFields& c) {
  const double heads = static_cast<double>(c.num_attention_heads),
               kv_heads = static_cast<double>(c.num_key_value_heads);
  const double hidden = static_cast<double>(c.hidden_size), inner = static_cast<double>(c.intermediate_size);
  const double attention = hidden * static_cast<double>(c.head_dim) * (2 * heads + 2 * kv_heads);
  const checkpoint::ExpertFields& e = c.experts;
  const double chosen = static_cast<double>(e.per_token * e.intermediate + e.shared_intermediate);
  double sum = 0;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const bool experts = e.at_layer(l);
    sum += attention + 3 * hidden * (experts ? chosen : inner);
    if (experts) sum += hidden * static_cast<double>(e.count);
  }
  return sum;
}

// Bytes of weights that a decode step of `batch` rows must read. Of E experts, rows that each go to k of them by chance
// reach E (1 - (1 - k / E)^batch).
double step_weight_bytes(const Engine& engine, double batch) {
  const auto& c = engine.config();
  const checkpoint::ExpertFields& e = c.experts;
  const auto all = static_cast<double>(engine.weight_bytes_per_step());
  if (e.count == 0) return all;
  const double count = static_cast<double>(e.count);
  const double missed = std::pow(1 - static_cast<double>(e.per_token) / count, batch);
  double experts = 0;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    if (e.at_layer(l)) experts += 3 * count * static_cast<double>(c.hidden_size * e.intermediate);
  return all - missed * experts * static_cast<double>(size_of(engine.dtype()));
}

// Of the linear layers' arithmetic.
double peak_of(const MachineSpeed& s, DType dtype, checkpoint::Quantization quantization) {
  using checkpoint::Quantization;
  const bool int8 = quantization == Quantization::W8A8Int8 || quantization == Quantization::ModelSlim ||
                    quantization == Quantization::CompressedTensors;
  if (int8 && s.int8_gops) return *s.int8_gops;
  // Where the bf16 dot product is the slower way, widening to fp32 is the faster one.
  return dtype == DType::BF16 ? std::max(s.fp32_gflops, s.bf16_gflops.value_or(0)) : s.fp32_gflops;
}

OrderedJson row_json(Engine& engine, const BenchFlags& f, const Row& r, const MachineSpeed& limits) {
  const double batch = static_cast<double>(r.batch_size), input = static_cast<double>(f.input_len);
  const double steps = static_cast<double>(f.output_len - 1);
  const double weight_bytes = step_weight_bytes(engine, batch);
  // The step that makes token i + 1 reads the keys and values of input + i tokens.
  const double kv_bytes = batch * (input + (steps + 1) / 2) * static_cast<double>(engine.kv_bytes_per_token());
  const double gbps = r.decode_s > 0 ? (weight_bytes + kv_bytes) * steps / r.decode_s / 1e9 : 0;
  const auto& c = engine.config();
  const double operations = 2 * batch * (input * layer_weights(c) + static_cast<double>(c.hidden_size * c.vocab_size));
  const double gflops = r.prefill_s > 0 ? operations / r.prefill_s / 1e9 : 0;
  const auto share = [](double v, double of) { return of > 0 ? v / of * 100 : 0; };
  OrderedJson j;
  j["batch_size"] = r.batch_size;
  j["input_len"] = f.input_len;
  j["output_len"] = f.output_len;
  j["graph"] = phase_mode(engine.decode_runner());
  j["passes"] = f.model.graph.passes.value_or("all");
  j["prefill_tok_s"] = r.prefill_s > 0 ? batch * input / r.prefill_s : 0;
  j["decode_tok_s"] = r.decode_s > 0 ? batch * steps / r.decode_s : 0;
  j["step_ms_p50"] = r.step_ms_p50;
  j["step_ms_p99"] = r.step_ms_p99;
  j["host_us"] = r.host_us;
  j["weight_bytes"] = static_cast<int64_t>(weight_bytes);
  j["kv_bytes"] = static_cast<int64_t>(kv_bytes);
  j["achieved_GBps"] = gbps;
  j["achieved_GFLOPs"] = gflops;
  j["pct_bandwidth"] = share(gbps, limits.read_GBps_all);
  j["pct_peak"] = share(gflops, peak_of(limits, engine.dtype(), engine.options().quantization));
  return j;
}

std::optional<double> larger(std::optional<double> a, std::optional<double> b) { return a && b ? std::max(*a, *b) : a; }

// Bandwidth is the mean of both times; a peak is a peak.
MachineSpeed between(const MachineSpeed& before, const MachineSpeed& after) {
  MachineSpeed s;
  s.read_GBps_1 = (before.read_GBps_1 + after.read_GBps_1) / 2;
  s.read_GBps_all = (before.read_GBps_all + after.read_GBps_all) / 2;
  s.fp32_gflops = std::max(before.fp32_gflops, after.fp32_gflops);
  s.bf16_gflops = larger(before.bf16_gflops, after.bf16_gflops);
  s.int8_gops = larger(before.int8_gops, after.int8_gops);
  if (before.barrier_ns && after.barrier_ns) s.barrier_ns = std::min(*before.barrier_ns, *after.barrier_ns);
  return s;
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
    for (const char* key : {"cpu", "isa", "threads", "devices", "warnings"}) one.erase(key);
    j[name] = std::move(one);
  }
  return j;
}

void print_table(const OrderedJson& report) {
  fmt::print("{:>5} {:>6} {:>6} {:>14} {:>13} {:>9} {:>9} {:>9} {:>6} {:>9} {:>6}\n", "batch", "input", "output",
             "prefill tok/s", "decode tok/s", "p50 ms", "p99 ms", "GB/s", "%", "GFLOP/s", "%");
  for (const auto& r : report["rows"]) {
    fmt::print("{:>5} {:>6} {:>6} {:>14.1f} {:>13.1f} {:>9.2f} {:>9.2f} {:>9.2f} {:>6.1f} {:>9.1f} {:>6.1f}\n",
               r["batch_size"].get<int64_t>(), r["input_len"].get<int64_t>(), r["output_len"].get<int64_t>(),
               r["prefill_tok_s"].get<double>(), r["decode_tok_s"].get<double>(), r["step_ms_p50"].get<double>(),
               r["step_ms_p99"].get<double>(), r["achieved_GBps"].get<double>(), r["pct_bandwidth"].get<double>(),
               r["achieved_GFLOPs"].get<double>(), r["pct_peak"].get<double>());
  }
  const auto& l = report["limits"];
  fmt::print("limits here: read {} GB/s, fp32 {} GFLOP/s, bf16 {} GFLOP/s\n", l["read_GBps_all"].dump(),
             l["fp32_gflops"].dump(), l["bf16_gflops"].dump());
  for (const auto& w : l["warnings"])
    fmt::print("{} {}\n", coloured(Colour::Yellow, "warning:", stdout), w.get<std::string>());
}

Status run_bench(BenchFlags f) {
  const int64_t largest = *std::max_element(f.batch_sizes.begin(), f.batch_sizes.end());
  f.model.max_running_requests = largest;  // no more rows of logits than needed
  if (f.model.max_total_tokens == 0)
    f.model.max_total_tokens = largest * kv::pages_for(f.input_len + f.output_len) * kv::kPageTokens;
  const Machine machine = describe_machine();
  const int threads =
      f.model.threads > 0 ? std::min(machine.threads, static_cast<int>(f.model.threads)) : machine.threads;
  const MachineSpeed before = measure_machine(threads);
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  if (f.input_len + f.output_len > engine->context_length())
    return invalid("--input-len {} and --output-len {} need a context of {}, but it is {}", f.input_len, f.output_len,
                   f.input_len + f.output_len, engine->context_length());

  std::vector<Row> rows;
  {
    Progress bar("bench", f.batch_sizes.size() * static_cast<uint64_t>(f.repeat));
    BenchFlags warm = f;  // a short run first: memory is touched, threads are awake
    warm.repeat = 1;
    warm.output_len = std::min<int64_t>(f.output_len, 4);
    Progress none("", 1, false);
    RETURN_IF_ERROR(measure(*engine, warm, f.batch_sizes[0], none).status());
    for (int64_t batch_size : f.batch_sizes) {
      ASSIGN_OR_RETURN(Row row, measure(*engine, f, batch_size, bar));
      rows.push_back(row);
    }
  }
  const MachineSpeed after = measure_machine(threads);
  OrderedJson report;
  report["limits"] = limits_json(machine, before, after);
  report["rows"] = OrderedJson::array();
  for (const Row& row : rows) report["rows"].push_back(row_json(*engine, f, row, between(before, after)));
  if (f.json) {
    fmt::print("{}\n", report.dump());
  } else {
    print_table(report);
  }
  return Status::ok();
}

}  // namespace

Command add_bench_one_batch(CLI::App& bench) {
  auto flags = std::make_shared<BenchFlags>();
  Command c;
  c.app = bench.add_subcommand("one-batch", "Speed of prefill and decode for batches of random prompts");
  add_integers(*c.app, "--batch-size", flags->batch_sizes, {1, 4096}, "sequences decoded together; one row each");
  add_integer(*c.app, "--input-len,--context-len", flags->input_len, {1, 1 << 24}, "tokens of each prompt (512)");
  add_integer(*c.app, "--output-len", flags->output_len, {2, 1 << 24}, "tokens generated for each (64)");
  add_integer(*c.app, "--repeat", flags->repeat, {1, 1000}, "runs of each row; medians are shown (3)");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  flags->model.add_to(*c.app);
  c.app->footer(
      "Works without a tokenizer, and with --load-format dummy from config.json alone. decode tok/s is summed over "
      "the\n"
      "batch. GB/s: weights and KV bytes that a decode step must read, over its time; %: of the read bandwidth "
      "measured in\n"
      "this run. Experts count as far as a batch reaches them by chance. GFLOP/s: multiplications and additions of "
      "the\n"
      "linear layers in prefill, over its time; %: of the peak for\n"
      "the dtype (bf16: the faster of the bf16 dot product and fp32; int8 linears: that of int8).");
  c.check = [flags] { return flags->model.check(); };
  c.run = [flags] { return run_bench(*flags); };
  return c;
}

}  // namespace reprise::apps
