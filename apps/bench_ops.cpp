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
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "measurement/op_suite.h"
#include "passes/extension.h"
#include "settings/setting.h"

namespace reprise::apps {

using namespace api;
using namespace see;

namespace {

// Letters that stand for models in older command lines.
constexpr std::pair<const char*, const char*> kLetters[] = {{"SmolLM2-135M", "A"},
                                                            {"Qwen3-0.6B", "B"},
                                                            {"DeepSeek-V2-Lite", "L"},
                                                            {"Qwen3-30B-A3B", "M"},
                                                            {"launch-bound", "T"}};

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
    return measurement::ops_named(filter, std::move(all));
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
    RETURN_IF_ERROR(check_model());
    if (auto known = cpu::parse_isa(isa); !known) return known.status().at("--isa");
    return device_options(device, ascend_runtime, ::getenv).status();
  }
  Status check_model() const {
    std::vector<std::string> allowed{"all"};
    for (std::string& name : measurement::benchmarked_models(nn::fused_ops())) allowed.push_back(std::move(name));
    if (std::find(allowed.begin(), allowed.end(), model) != allowed.end()) return Status::ok();
    for (const auto& [name, letter] : kLetters) allowed.emplace_back(letter);
    return invalid("--model \"{}\"; allowed: {}", model, fmt::join(allowed, ", "));
  }
  std::vector<DType> dtypes() const {
    if (dtype == "all") return {DType::BF16, DType::F16, DType::F32};
    return {parse_dtype(dtype).value()};
  }
  measurement::OpSelection selection(std::vector<std::string> of) const {
    return {ops(std::move(of)), model == "all" ? "" : model, dtypes(), tokens};
  }
};

constexpr const char* kModelledOps = "modelled time, not measured on a device";

// Shares of the original system, on its own hardware, where launches were most of what was saved.
constexpr std::pair<const char*, double> kOriginal[] = {{"split_qk_norm_rope", 0.403},
                                                        {"add_rms_norm_quant_static", 0.655}};

using Row = measurement::OpRow;

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
  j["detail"] = r.detail;
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

// The ops of the extensions, on the sizes of a model or on their own examples; else the house's ops.
Result<measurement::OpPlan> plan_of(const OpsFlags& f, const Platform& platform, nn::FusedOps& fused) {
  if (f.extensions.empty()) return measurement::plan_ops(f.selection(measurement::benchmarked_ops(fused)), fused);
  std::vector<std::string> names;
  for (const nn::FusedOp& op : measurement::extension_ops(platform)) {
    names.emplace_back(op.name());
    fused.add(op);
  }
  if (names.empty()) return invalid("--extension: {} declares no op to measure", fmt::join(f.extensions, ", "));
  RETURN_IF_ERROR(f.check_filter(names));
  if (!f.model_path.empty()) log::set_level(log::Level::Warning);  // the report of a start is of no interest
  return measurement::plan_extension_ops(f.selection(names), fused,
                                         {f.model_path, f.extensions, f.device, f.isa, f.threads});
}

OrderedJson ops_report(const measurement::OpReport& m, OrderedJson limits) {
  OrderedJson report;
  report["limits"] = std::move(limits);
  for (const auto& [op, ratio] : kOriginal) report["original_ratios"][op] = ratio;
  report["not_here"] = m.refused;
  report["rows"] = OrderedJson::array();
  for (const Row& r : m.rows) report["rows"].push_back(row_json(r));
  return report;
}

void print_modelled(const OpsFlags& f, const Device& device, const measurement::OpReport& m) {
  const std::vector<std::string> note = clock_lines(device);
  if (f.json) {
    OrderedJson report = ops_report(m, {{"device", device.info().name}, {"launch_us", m.launch_us}});
    report["time"] = kModelledOps;
    report["clock_note"] = note;
    fmt::print("{}\n", report.dump());
    return;
  }
  print_modelled_rows(m.rows);
  fmt::print("{}; {}; a launch by itself {:.3f} us\n", device.info().name, kModelledOps, m.launch_us);
  for (const auto& line : note) fmt::print("  {}\n", line);
  for (const auto& r : m.refused) fmt::print("not here: {}\n", r);
}

void print_measured(const OpsFlags& f, const DeviceInfo& info, const measurement::Machine& machine,
                    const measurement::OpReport& m) {
  if (f.json) {
    OrderedJson limits = measurement::machine_json(machine, m.speed);
    limits["isa"] = info.isa;
    limits["order"] = info.order;
    limits["threads"] = info.threads;
    limits["launch_us"] = m.launch_us;
    for (const measurement::CacheLevel& l : m.caches.levels)
      limits["levels"].push_back({{"name", l.name}, {"read_GBps", l.read_GBps}});
    fmt::print("{}\n", ops_report(m, std::move(limits)).dump());
    return;
  }
  print_rows(m.rows, m.launch_us, !m.speed.disturbed());
  std::string levels;
  for (const measurement::CacheLevel& l : m.caches.levels)
    levels += fmt::format(", {} {:.0f} GB/s", l.name, l.read_GBps);
  fmt::print("limits here: {}, {} thread{}{}, fp32 {:.0f} GFLOP/s; a launch by itself {:.3f} us\n", info.isa,
             info.threads, info.threads == 1 ? "" : "s", levels, m.speed.fp32_gflops, m.launch_us);
  for (const auto& r : m.refused) fmt::print("not here: {}\n", r);
  for (const auto& w : machine.warnings) fmt::print("{} {}\n", coloured(Colour::Yellow, "warning:", stdout), w);
}

Status run_ops(const OpsFlags& f) {
  ASSIGN_OR_RETURN(DeviceOptions device, device_options(f.device, f.ascend_runtime, ::getenv));
  device.isa = f.isa;
  device.threads = static_cast<int>(f.threads);
  ASSIGN_OR_RETURN(Platform platform, make_platform(device));
  nn::register_fused_ops(*platform.ops);
  for (const std::string& file : f.extensions) RETURN_IF_ERROR(load_extension(file, platform));
  nn::FusedOps fused = nn::fused_ops();
  ASSIGN_OR_RETURN(const measurement::OpPlan plan, plan_of(f, platform, fused));
  if (f.calls)
    return measurement::replay_ops(
        plan, platform, fused, *f.calls, [](const measurement::OpWork& w, int64_t tokens, int64_t calls) {
          fmt::print("{} {} {} {} tokens: {} calls\n", w.op.op, w.op.model, dtype_name(w.dtype), tokens, calls);
        });
  measurement::Machine machine = measurement::describe_machine();
  for (const Notice& n : device_notices(f.device, f.ascend_runtime))
    machine.warnings.push_back(settings::as_flags(n.text));
  ASSIGN_OR_RETURN(const measurement::OpReport report, measurement::measure_ops(plan, platform, fused, f.repeat));
  if (report.modelled) {
    print_modelled(f, *platform.device, report);
    return Status::ok();
  }
  if (const std::string why = disturbance(report.speed); !f.json && !why.empty()) machine.warnings.push_back(why);
  print_measured(f, platform.device->info(), machine, report);
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
  add_text(*c.app, "--model", flags->model,
           "whose shapes: all, SmolLM2-135M, Qwen3-0.6B, gpt-oss-20b, ... (a name that is not known lists them), or "
           "launch-bound, a toy whose launches cost more than its work",
           "NAME");
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
    for (const auto& [name, letter] : kLetters)
      if (flags->model == letter) flags->model = name;
    return flags->check();
  };
  c.run = [flags] { return run_ops(*flags); };
  return c;
}

}  // namespace reprise::apps
