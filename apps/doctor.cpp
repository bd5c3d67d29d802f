// `reprise doctor`: what this machine is and what it can do at best.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "api/device_choice.h"
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "measurement/collective_bench.h"
#include "measurement/device_probe.h"
#include "measurement/machine_probe.h"
#include "settings/setting.h"
#include "verification/self_test.h"

namespace reprise::apps {

using namespace api;
using namespace see;

namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

std::string or_absent(const std::optional<double>& v, const char* unit) {
  return v ? fmt::format("{:.0f} {}", *v, unit) : "no such instruction";
}

void print_table(const measurement::Machine& m, const MachineSpeed& s) {
  const auto row = [](const char* name, const std::string& value) { fmt::print("{:<22}{}\n", name, value); };
  row("processor", m.cpu);
  row("instruction sets", joined(m.isa));
  row("used by default", m.isa_used);
  row("order of sums", m.order);
  row("threads allowed", fmt::format("{}", m.threads));
  row("devices", joined(m.devices));
  row("memory read, 1 thread", fmt::format("{:.1f} GB/s", s.read_GBps_1));
  row("memory read, all", fmt::format("{:.1f} GB/s", s.read_GBps_all));
  row("fp32 multiply-add", fmt::format("{:.0f} GFLOP/s", s.fp32_gflops));
  const std::string product = m.isa.back() == "amx" ? "product on tiles" : "dot product";
  row(("bf16 " + product).c_str(), or_absent(s.bf16_gflops, "GFLOP/s"));
  row(("int8 " + product).c_str(), or_absent(s.int8_gops, "GOP/s"));
  row("barrier, 2 threads", s.barrier_ns ? fmt::format("{:.0f} ns", *s.barrier_ns) : "one processor only");
  for (const auto& w : m.warnings) fmt::print("{} {}\n", coloured(Colour::Yellow, "warning:", stdout), w);
}

void print_device(const Device& device, const std::optional<measurement::DeviceSpeed>& speed) {
  const auto row = [](std::string_view name, const std::string& value) { fmt::print("{:<22}{}\n", name, value); };
  for (const auto& [name, value] : device_lines(device)) row(name, settings::as_flags(value));
  if (!speed) return;
  row("copy on the device", fmt::format("{:.0f} GB/s, read and written together", speed->copy_GBps));
  row("copy to it, to host", fmt::format("{:.1f} GB/s, {:.1f} GB/s", speed->to_device_GBps, speed->to_host_GBps));
  row("4 bytes to it, back", fmt::format("{:.1f} us", speed->round_trip_us));
  row("bf16 product", speed->bf16_tflops ? fmt::format("{:.0f} TFLOP/s, {} x {} x {} random numbers",
                                                       *speed->bf16_tflops, speed->size, speed->size, speed->size)
                                         : "no kernel");
}

OrderedJson device_speed_json(const measurement::DeviceSpeed& s) {
  return {{"copy_GBps", s.copy_GBps},
          {"to_device_GBps", s.to_device_GBps},
          {"to_host_GBps", s.to_host_GBps},
          {"round_trip_us", s.round_trip_us},
          {"bf16_tflops", s.bf16_tflops ? OrderedJson(*s.bf16_tflops) : OrderedJson(nullptr)}};
}

void print_self_test(const verification::SelfTest& t) {
  fmt::print("self-test\n");
  for (const verification::SelfCheck& c : t.checks) {
    const std::string verdict = !c.passed   ? "skip"
                                : *c.passed ? coloured(Colour::Green, "pass", stdout)
                                            : coloured(Colour::Red, "FAIL", stdout);
    fmt::print("  {}  {}{}{}\n", verdict, c.name, c.detail.empty() ? "" : ": ", settings::as_flags(c.detail));
  }
  for (const auto& [name, us] : t.times_us) fmt::print("  {:<22}{:.2f} us\n", name, us);
}

OrderedJson self_test_json(const verification::SelfTest& t) {
  OrderedJson j;
  j["checks"] = OrderedJson::array();
  for (const verification::SelfCheck& c : t.checks)
    j["checks"].push_back({{"name", c.name},
                           {"result", !c.passed   ? "skip"
                                      : *c.passed ? "pass"
                                                  : "fail"},
                           {"detail", c.detail}});
  j["times_us"] = OrderedJson::object();
  for (const auto& [name, us] : t.times_us) j["times_us"][name] = us;
  return j;
}

// The null device has no operators.
std::optional<verification::SelfTest> tested(const Platform& platform) {
  if (platform.device->info().kind == DeviceKind::Null) return std::nullopt;
  return verification::self_test(platform);
}

struct DoctorFlags {
  bool json = false;
  int64_t threads = 0;
  std::string device = "auto";
  std::optional<std::string> ascend_runtime;
  ModelFlags ranks;  // of which only those about ranks are flags here
};

constexpr int64_t kExchanges = 200;  // of each kind

void print_ranks(const ranks::Member& member, const std::vector<measurement::CollectiveTime>& times) {
  const ranks::World& world = member.world();
  fmt::print("{:<22}{}{}\n", "ranks",
             world.one_host() ? fmt::format("{} on this host", world.size)
                              : fmt::format("{}, of which {} on this host", world.size, world.local_size),
             member.copies_past_caches() ? "; parts are written past the caches" : "");
  for (const measurement::CollectiveTime& t : times)
    fmt::print("{:<22}{:.1f} us\n", fmt::format("{}, {} KB", t.name, t.bytes >> 10), t.us);
}

OrderedJson ranks_json(const ranks::Member& member, const std::vector<measurement::CollectiveTime>& times) {
  const ranks::World& world = member.world();
  OrderedJson j = {{"size", world.size},
                   {"on_this_host", world.local_size},
                   {"past_caches", member.copies_past_caches()},
                   {"times", OrderedJson::array()}};
  for (const measurement::CollectiveTime& t : times)
    j["times"].push_back({{"name", t.name}, {"bytes", t.bytes}, {"us", t.us}});
  return j;
}

// What ranks exchange, checked and timed, instead of the machine: its processors are shared out by now.
Status run_over_ranks(const DoctorFlags& f) {
  ranks::Member& member = *f.ranks.member;
  ASSIGN_OR_RETURN(const auto times, measurement::measure_collectives(member, kExchanges));
  if (f.json)
    fmt::print("{}\n", ranks_json(member, times).dump());
  else
    print_ranks(member, times);
  return Status::ok();
}

Status run_doctor(const DoctorFlags& f) {
  if (f.ranks.member) return run_over_ranks(f);
  ASSIGN_OR_RETURN(const DeviceOptions options, device_options(f.device, f.ascend_runtime, ::getenv));
  // A device that is not there is said at once. The processor needs no opening: it is what is measured.
  std::optional<Platform> platform;
  if (options.kind != DeviceKind::Cpu) {
    ASSIGN_OR_RETURN(platform, make_platform(options));
  }
  measurement::Machine m = measurement::describe_machine();
  if (f.threads > m.threads)
    m.warnings.push_back(fmt::format("--threads {} is more than the {} that may be used; measured with {}", f.threads,
                                     m.threads, m.threads));
  for (const Notice& n : device_notices(f.device, f.ascend_runtime)) m.warnings.push_back(settings::as_flags(n.text));
  const int used = f.threads > 0 ? static_cast<int>(std::min<int64_t>(f.threads, m.threads)) : m.threads;
  const MachineSpeed s = measurement::measure_machine(used);
  if (const std::string why = disturbance(s); !f.json && !why.empty()) m.warnings.push_back(why);
  const std::optional<verification::SelfTest> test = platform ? tested(*platform) : std::nullopt;
  std::optional<measurement::DeviceSpeed> speed;
  if (platform && measurement::has_device_speed(*platform->device)) {
    auto measured = measurement::measure_device(*platform);
    if (measured.is_ok())
      speed = *measured;
    else
      m.warnings.push_back(fmt::format("the device was not measured: {}", measured.status().message()));
  }
  if (f.json) {
    OrderedJson j = measurement::machine_json(m, s);
    if (platform) j["device"] = device_json(*platform->device);
    if (speed) j["device"]["measured"] = device_speed_json(*speed);
    if (test) j["self_test"] = self_test_json(*test);
    fmt::print("{}\n", settings::as_flags(j.dump()));
  } else {
    print_table(m, s);
    if (platform) print_device(*platform->device, speed);
    if (test) print_self_test(*test);
  }
  if (!test || test->failed().empty()) return Status::ok();
  return error(Code::Device, "the self-test failed: {}; please send the whole output", fmt::join(test->failed(), "; "));
}

}  // namespace

Command add_doctor(CLI::App& program) {
  auto flags = std::make_shared<DoctorFlags>();
  Command c;
  c.app = program.add_subcommand("doctor", "Measure and report this machine: bandwidth, peak arithmetic, warnings");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  add_integer(*c.app, "--threads", flags->threads, {0, 1024}, "threads of the figures for all; 0: every allowed one");
  add_settings(*c.app,
               std::vector<settings::Binding>{{"device", &flags->device}, {"ascend_runtime", &flags->ascend_runtime}},
               "Options");
  add_settings(*c.app,
               std::vector<settings::Binding>{{"tp_size", &flags->ranks.tp_size},
                                              {"dist_launcher", &flags->ranks.dist_launcher},
                                              {"nnodes", &flags->ranks.nnodes},
                                              {"dist_timeout", &flags->ranks.dist_timeout}},
               "Ranks");
  c.app->footer(
      "Each figure is the best of a few trials of some milliseconds; the whole takes about two seconds. With\n"
      "another --device than cpu, what that says of itself and what it copies and multiplies follow, and a\n"
      "self-test of memory, a computation, graphs and streams; one that cannot be opened ends with the reason, and a\n"
      "failed self-test with exit code 1.\n"
      "With --tp-size above 1 it is the exchange between ranks of the CPU that is tested and timed, alone.");
  c.over_ranks = [flags] { return flags->ranks.tp_size > 1 ? &flags->ranks : nullptr; };
  c.follow = [flags] { return measurement::measure_collectives(*flags->ranks.member, kExchanges).status(); };
  c.check = [flags] { return device_options(flags->device, flags->ascend_runtime, ::getenv).status(); };
  c.run = [flags] { return run_doctor(*flags); };
  return c;
}

}  // namespace reprise::apps
