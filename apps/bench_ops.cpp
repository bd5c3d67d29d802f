// `reprise bench ops`: every fused op against its parts, and the single ops that matter, on shapes of real models, with
// the limit of the machine.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "api/device_choice.h"
#include "backends/all.h"
#include "backends/cpu/isa.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "measurement/extension_cases.h"
#include "measurement/op_bench.h"
#include "passes/extension.h"
#include "settings/setting.h"

namespace reprise::apps {

using namespace api;
using namespace see;

namespace {

struct OpsFlags {
  std::string filter, dtype = "all", model = "all", isa = "auto", device = "auto";
  std::optional<std::string> ascend_runtime;
  std::vector<std::string> extensions;  // their ops alone are measured
  std::string model_path;               // in whose graph they are looked for
  std::vector<int64_t> tokens{1, 4, 16, 64};
  int64_t threads = 0;
  int64_t repeat = 31;
  std::optional<int64_t> calls;
  bool json = false;

  // Those of `all` that --filter leaves.
  std::vector<std::string> ops(std::vector<std::string> all) const {
    std::vector<std::string> out = std::move(all);
    if (filter.empty()) return out;
    // A whole name means that op alone; anything else every op that holds it.
    if (std::find(out.begin(), out.end(), filter) != out.end()) return {filter};
    std::erase_if(out, [&](const std::string& op) { return op.find(filter) == std::string::npos; });
    return out;
  }
  Status check_filter(const std::vector<std::string>& all) const {
    if (ops(all).empty())
      return invalid("--filter \"{}\" fits no op; allowed: a part of one of {}", filter, fmt::join(all, ", "));
    return Status::ok();
  }
  Status check() const {
    // What an extension brings is known once it is loaded.
    if (extensions.empty()) RETURN_IF_ERROR(check_filter(measurement::benchmarked_ops(nn::fused_ops())));
    if (extensions.empty() && !model_path.empty()) return invalid("--model-path needs --extension");
    if (!model_path.empty() && model != "all") return invalid("--model-path cannot go with --model");
    if (auto known = cpu::parse_isa(isa); !known) return known.status().at("--isa");
    return device_options(device, ascend_runtime, ::getenv).status();
  }
  std::vector<DType> dtypes() const {
    if (dtype == "all") return {DType::BF16, DType::F16, DType::F32};
    return {parse_dtype(dtype).value()};
  }
};

// Whose shapes are measured, and the letters that stand for them in older command lines.
constexpr std::pair<const char*, const char*> kShapes[] = {{"SmolLM2-135M", "A"},
                                                           {"Qwen3-0.6B", "B"},
                                                           {"DeepSeek-V2-Lite", "L"},
                                                           {"Qwen3-30B-A3B", "M"},
                                                           {"launch-bound", "T"}};

constexpr const char* kModelledOps = "modelled time, not measured on a device";

struct Row {
  std::string op, model, detail, shape;
  DType dtype = DType::F32;
  int64_t tokens = 0;
  measurement::OpTimes times;
  measurement::OpLimit limit;
  bool same_bits = true;
};

// Shares of the original system, on its own hardware, where launches were most of what was saved.
constexpr std::pair<const char*, double> kOriginal[] = {{"split_qk_norm_rope", 0.403},
                                                        {"add_rms_norm_quant_static", 0.655}};

// What a launch costs by itself: a chain of calls that each have one row of sixteen numbers to do.
Result<double> launch_us(const Platform& platform, const nn::FusedOps& fused, int64_t repeat) {
  const TensorType tiny{DType::F32, {Dim(1, 1), Dim(16)}};
  const measurement::OpCase c{"add", "", "", {{"T", 1}}, {tiny, tiny}, {}};
  ASSIGN_OR_RETURN(auto bench, measurement::OpBench::make(c, DType::F32, fused, platform));
  ASSIGN_OR_RETURN(const measurement::OpTimes times, bench->measure(1, repeat));
  return times.fused_us;
}

struct Work {
  measurement::OpCase op;
  DType dtype;
};

OrderedJson row_json(const Row& r) {
  OrderedJson j;
  j["op"] = r.op;
  j["dtype"] = dtype_name(r.dtype);
  j["shape"] = r.shape;
  j["fused_us"] = r.times.fused_us;
  j["unfused_us"] = r.times.unfused_us ? OrderedJson(*r.times.unfused_us) : OrderedJson(nullptr);
  j["ratio"] = r.times.unfused_us ? OrderedJson(r.times.fused_us / *r.times.unfused_us) : OrderedJson(nullptr);
  if (r.times.eager_fused_us) {
    j["same_bits"] = r.same_bits;
    j["eager_fused_us"] = *r.times.eager_fused_us;
    j["eager_unfused_us"] = r.times.eager_unfused_us ? OrderedJson(*r.times.eager_unfused_us) : OrderedJson(nullptr);
    j["eager_ratio"] = r.times.eager_unfused_us ? OrderedJson(*r.times.eager_fused_us / *r.times.eager_unfused_us)
                                                : OrderedJson(nullptr);
  } else {  // of a device whose time is modelled no limit is measured
    j["limit_us"] = r.limit.us;
    j["limit_by"] = r.limit.by;
  }
  j["bytes"] = r.limit.bytes;
  j["model"] = r.model;
  j["tokens"] = r.tokens;
  return j;
}

std::string title_of(const Row& r) {
  return fmt::format("{} {}, {}{}{}", r.op, dtype_name(r.dtype), r.model, r.detail.empty() ? "" : ": ", r.detail);
}

std::string original_of(const Row& r) {
  for (const auto& [op, ratio] : kOriginal)
    if (r.op == op) return fmt::format("  (original system: ratio {:.3f}, launch-bound)", ratio);
  return {};
}

std::string ratio_text(double v) {
  return coloured(v > 1 ? Colour::Red : Colour::Green, fmt::format("{:>7.3f}", v), stdout);
}

// Without shares of a limit that was measured under other load.
void print_rows(const std::vector<Row>& rows, double launch, bool limits_hold) {
  std::string before;
  for (const Row& r : rows) {
    if (const std::string title = title_of(r); title != before) {
      fmt::print("{}{}\n", coloured(Colour::Bold, title, stdout), original_of(r));
      fmt::print("{:>7} {:>11} {:>11} {:>7} {:>11} {:>8} {:>9}  {}\n", "tokens", "fused us", "parts us", "ratio",
                 "limit us", "% limit", "+launch %", "limited by");
      before = title;
    }
    std::string parts = "-", ratio = "-";
    if (r.times.unfused_us) {
      parts = fmt::format("{:.3f}", *r.times.unfused_us);
      ratio = ratio_text(r.times.fused_us / *r.times.unfused_us);
    }
    const auto share = [&](double us) {
      return limits_hold ? fmt::format("{:.1f}", 100 * us / r.times.fused_us) : std::string("-");
    };
    fmt::print("{:>7} {:>11.3f} {:>11} {:>7} {:>11.3f} {:>8} {:>9}  {}\n", r.tokens, r.times.fused_us, parts, ratio,
               r.limit.us, share(r.limit.us), share(r.limit.us + launch), r.limit.by);
  }
}

// In a graph, and launched one by one.
void print_modelled_rows(const std::vector<Row>& rows) {
  std::string before;
  for (const Row& r : rows) {
    if (const std::string title = title_of(r); title != before) {
      fmt::print("{}{}\n", coloured(Colour::Bold, title, stdout), original_of(r));
      fmt::print("{:>7} {:>11} {:>11} {:>7} {:>15} {:>15} {:>7}\n", "tokens", "fused us", "parts us", "ratio",
                 "eager fused us", "eager parts us", "ratio");
      before = title;
    }
    const auto number = [](std::optional<double> v) { return v ? fmt::format("{:.3f}", *v) : std::string("-"); };
    const auto ratio = [](std::optional<double> a, std::optional<double> b) {
      return a && b ? ratio_text(*a / *b) : std::string("-");
    };
    const measurement::OpTimes& t = r.times;
    fmt::print("{:>7} {:>11.3f} {:>11} {:>7} {:>15} {:>15} {:>7}{}\n", r.tokens, t.fused_us, number(t.unfused_us),
               ratio(t.fused_us, t.unfused_us), number(t.eager_fused_us), number(t.eager_unfused_us),
               ratio(t.eager_fused_us, t.eager_unfused_us), r.same_bits ? "" : "  (rounds otherwise than its parts)");
  }
}

std::vector<Work> work_of(const OpsFlags& f, const nn::FusedOps& fused) {
  const int64_t most = *std::max_element(f.tokens.begin(), f.tokens.end());
  std::vector<Work> work;
  for (const std::string& op : f.ops(measurement::benchmarked_ops(fused)))
    for (DType dtype : f.dtypes())
      for (measurement::OpCase& c : measurement::op_cases(op, fused, most))
        if (f.model == "all" || f.model == c.model || c.model == "example") work.push_back({std::move(c), dtype});
  return work;
}

// What there is to do, and what was left out and why.
struct Plan {
  std::vector<Work> work;
  std::vector<std::string> refused;
};

// The ops of the extensions, on the sizes of a model or on their own examples; else the house's ops.
Result<Plan> plan_of(const OpsFlags& f, const Platform& platform, nn::FusedOps& fused) {
  if (f.extensions.empty()) return Plan{work_of(f, fused), {}};
  std::vector<std::string> names;
  for (const nn::FusedOp& op : measurement::extension_ops(platform)) {
    names.emplace_back(op.name());
    fused.add(op);
  }
  if (names.empty()) return invalid("--extension: {} declares no op to measure", fmt::join(f.extensions, ", "));
  RETURN_IF_ERROR(f.check_filter(names));
  const int64_t most = *std::max_element(f.tokens.begin(), f.tokens.end());
  if (!f.model_path.empty()) log::set_level(log::Level::Warning);  // the report of a start is of no interest
  Plan plan;
  for (DType dtype : f.dtypes()) {
    std::vector<measurement::OpCase> cases;
    if (f.model_path.empty()) {
      for (const std::string& op : f.ops(names))
        for (measurement::OpCase& c : measurement::op_cases(op, fused, most)) cases.push_back(std::move(c));
    } else {
      const measurement::ModelOfCases model{f.model_path, f.extensions, f.device, f.isa, f.threads, dtype};
      ASSIGN_OR_RETURN(cases, measurement::cases_in_model(model, f.ops(names), most, plan.refused));
    }
    for (measurement::OpCase& c : cases) plan.work.push_back({std::move(c), dtype});
  }
  return plan;
}

// Every op a given number of times and nothing measured: what tools/count_instructions.py runs.
Status run_calls(const OpsFlags& f, const Platform& platform, const nn::FusedOps& fused, const Plan& plan) {
  for (const Work& w : plan.work) {
    auto bench = measurement::OpBench::make(w.op, w.dtype, fused, platform);
    if (!bench && bench.status().code() == Code::Unsupported) continue;
    if (!bench) return bench.status().at(fmt::format("{} {}", w.op.op, dtype_name(w.dtype)));
    for (int64_t tokens : f.tokens) {
      RETURN_IF_ERROR((*bench)->replay(tokens, *f.calls));
      fmt::print("{} {} {} {} tokens: {} calls\n", w.op.op, w.op.model, dtype_name(w.dtype), tokens,
                 *f.calls * (*bench)->calls());
    }
  }
  return Status::ok();
}

struct Measured {
  std::vector<Row> rows;
  std::vector<std::string> refused;
};

Result<Measured> measure_all(const OpsFlags& f, const Platform& platform, const nn::FusedOps& fused, const Plan& plan,
                             const MachineSpeed& speed, const measurement::CacheSpeeds& caches) {
  Measured out;
  out.refused = plan.refused;
  Progress bar("ops", plan.work.size() * f.tokens.size());
  for (const Work& w : plan.work) {
    auto bench = measurement::OpBench::make(w.op, w.dtype, fused, platform);
    if (!bench && bench.status().code() == Code::Unsupported) {
      out.refused.push_back(fmt::format("{} {}: {}", w.op.op, dtype_name(w.dtype), bench.status().message()));
      bar.advance(f.tokens.size(), w.op.op);
      continue;
    }
    if (!bench) return bench.status().at(fmt::format("{} {}", w.op.op, dtype_name(w.dtype)));
    for (int64_t tokens : f.tokens) {
      // On this house's own kernels a difference is an error; a vendor's fused operator may round less often.
      const Status same = (*bench)->check(tokens);
      if (!same.is_ok() && !(platform.device->clock_us() && same.code() == Code::Internal)) return same;
      ASSIGN_OR_RETURN(const measurement::OpTimes times, (*bench)->measure(tokens, f.repeat));
      out.rows.push_back({w.op.op, w.op.model, w.op.detail, (*bench)->shape(tokens), w.dtype, tokens, times,
                          (*bench)->limit(tokens, speed, caches), same.is_ok()});
      bar.advance(1, fmt::format("{} {} {}", w.op.op, dtype_name(w.dtype), w.op.model));
    }
  }
  if (out.rows.empty()) return error(Code::Unsupported, "nothing could be measured: {}", fmt::join(out.refused, "; "));
  return out;
}

OrderedJson ops_report(const Measured& m, OrderedJson limits) {
  OrderedJson report;
  report["limits"] = std::move(limits);
  for (const auto& [op, ratio] : kOriginal) report["original_ratios"][op] = ratio;
  report["not_here"] = m.refused;
  report["rows"] = OrderedJson::array();
  for (const Row& r : m.rows) report["rows"].push_back(row_json(r));
  return report;
}

// A device whose time is modelled: nothing of this machine is measured.
Status run_modelled(const OpsFlags& f, const Platform& platform, const nn::FusedOps& fused, const Plan& plan) {
  ASSIGN_OR_RETURN(const double launch, launch_us(platform, fused, f.repeat));
  ASSIGN_OR_RETURN(const Measured m, measure_all(f, platform, fused, plan, {}, {}));
  const std::vector<std::string> note = clock_lines(*platform.device);
  if (f.json) {
    OrderedJson report = ops_report(m, {{"device", platform.device->info().name}, {"launch_us", launch}});
    report["time"] = kModelledOps;
    report["clock_note"] = note;
    fmt::print("{}\n", report.dump());
    return Status::ok();
  }
  print_modelled_rows(m.rows);
  fmt::print("{}; {}; a launch by itself {:.3f} us\n", platform.device->info().name, kModelledOps, launch);
  for (const auto& line : note) fmt::print("  {}\n", line);
  for (const auto& r : m.refused) fmt::print("not here: {}\n", r);
  return Status::ok();
}

Status run_ops(const OpsFlags& f) {
  ASSIGN_OR_RETURN(DeviceOptions device, device_options(f.device, f.ascend_runtime, ::getenv));
  device.isa = f.isa;
  device.threads = static_cast<int>(f.threads);
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  nn::register_fused_ops(*platform.ops);
  for (const std::string& file : f.extensions) RETURN_IF_ERROR(load_extension(file, platform));
  nn::FusedOps fused = nn::fused_ops();
  ASSIGN_OR_RETURN(const Plan plan, plan_of(f, platform, fused));
  if (f.calls) return run_calls(f, platform, fused, plan);
  if (platform.device->clock_us()) return run_modelled(f, platform, fused, plan);
  const DeviceInfo& info = platform.device->info();
  measurement::Machine machine = measurement::describe_machine();
  for (const Notice& n : device_notices(f.device, f.ascend_runtime))
    machine.warnings.push_back(settings::as_flags(n.text));
  const MachineSpeed speed = measurement::measure_machine(info.threads);
  if (const std::string why = disturbance(speed); !f.json && !why.empty()) machine.warnings.push_back(why);
  const measurement::CacheSpeeds caches = measurement::measure_caches(info.threads);
  ASSIGN_OR_RETURN(const double launch, launch_us(platform, fused, f.repeat));
  ASSIGN_OR_RETURN(const Measured m, measure_all(f, platform, fused, plan, speed, caches));

  if (!f.json) {
    print_rows(m.rows, launch, !speed.disturbed());
    std::string levels;
    for (const measurement::CacheLevel& l : caches.levels)
      levels += fmt::format(", {} {:.0f} GB/s", l.name, l.read_GBps);
    fmt::print("limits here: {}, {} thread{}{}, fp32 {:.0f} GFLOP/s; a launch by itself {:.3f} us\n", info.isa,
               info.threads, info.threads == 1 ? "" : "s", levels, speed.fp32_gflops, launch);
    for (const auto& r : m.refused) fmt::print("not here: {}\n", r);
    for (const auto& w : machine.warnings) fmt::print("{} {}\n", coloured(Colour::Yellow, "warning:", stdout), w);
    return Status::ok();
  }
  OrderedJson limits = measurement::machine_json(machine, speed);
  limits["isa"] = info.isa;
  limits["threads"] = info.threads;
  limits["launch_us"] = launch;
  for (const measurement::CacheLevel& l : caches.levels)
    limits["levels"].push_back({{"name", l.name}, {"read_GBps", l.read_GBps}});
  fmt::print("{}\n", ops_report(m, std::move(limits)).dump());
  return Status::ok();
}

}  // namespace

Command add_bench_ops(CLI::App& bench) {
  auto flags = std::make_shared<OpsFlags>();
  Command c;
  c.app = bench.add_subcommand("ops", "Every fused op compared with its parts, and important single ops");
  add_text(*c.app, "--filter", flags->filter, "an op, or a part of the names of several; default: all", "NAME");
  add_choice(*c.app, "--dtype", flags->dtype, {"all", "bfloat16", "float16", "half", "float32"},
             "of activations and weights (all)");
  add_integers(*c.app, "--tokens", flags->tokens, {1, 4096}, "rows of a step (1,4,16,64)");
  std::vector<std::string> shapes{"all"};
  for (const auto& [name, letter] : kShapes) shapes.emplace_back(name);
  for (const auto& [name, letter] : kShapes) shapes.emplace_back(letter);
  add_choice(*c.app, "--model", flags->model, std::move(shapes),
             "whose shapes; launch-bound: a toy whose launches cost more than its work; A, B, L, M and T stand for the "
             "five models");
  add_setting(*c.app, {"extension", &flags->extensions}, "measure the ops of this library instead; repeatable",
              "Options");
  add_text(*c.app, "--model-path", flags->model_path,
           "with --extension: on the sizes that its ops have in this model (a folder; no weights are needed), not on "
           "their examples",
           "FOLDER");
  add_integer(*c.app, "--threads", flags->threads, {0, 1024}, "CPU threads; 0: one per allowed core");
  add_settings(*c.app,
               std::vector<settings::Binding>{{"device", &flags->device}, {"ascend_runtime", &flags->ascend_runtime}},
               "Options");
  add_text(*c.app, "--isa", flags->isa, "CPU instruction set: " + cpu::isa_choices(), "NAME");
  add_integer(*c.app, "--repeat", flags->repeat, {1, 10000}, "samples of each side; medians are shown");
  add_integer(*c.app, "--calls", flags->calls, {0, 1 << 20},
              "replay each op exactly so many times and measure nothing (for instruction counters)");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  c.app->footer(
      "Both sides are captured, replayed in alternation on the same inputs, and must give the same bits. A time is of\n"
      "one call in a graph of several, one after another: with its launch and a barrier, without a wake-up. Limit:\n"
      "bytes of operands and results over the read bandwidth of the cache level they fit in, or the instructions that\n"
      "the parts are made of (products, sums, conversions) at the peak rate, whichever takes longer. \"+launch %\" "
      "adds\n"
      "to it what an empty launch costs here. Ratios of the original system are shown for ops that have one.\n"
      "On a device whose time is modelled (--device ascend --ascend-runtime sim) no limit is measured; a second pair "
      "of\n"
      "columns has the times of launches one by one.");
  c.check = [flags] {
    for (const auto& [name, letter] : kShapes)
      if (flags->model == letter) flags->model = name;
    return flags->check();
  };
  c.run = [flags] { return run_ops(*flags); };
  return c;
}

}  // namespace reprise::apps
