// `reprise doctor`: what this machine is and what it can do at best.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "command.h"
#include "common/flags.h"
#include "common/machine_probe.h"
#include "common/terminal.h"

namespace reprise::apps {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

std::string or_absent(const std::optional<double>& v, const char* unit) {
  return v ? fmt::format("{:.0f} {}", *v, unit) : "no such instruction";
}

void print_table(const Machine& m, const MachineSpeed& s) {
  const auto row = [](const char* name, const std::string& value) { fmt::print("{:<22}{}\n", name, value); };
  row("processor", m.cpu);
  row("instruction sets", joined(m.isa));
  row("threads allowed", fmt::format("{}", m.threads));
  row("devices", joined(m.devices));
  row("memory read, 1 thread", fmt::format("{:.1f} GB/s", s.read_GBps_1));
  row("memory read, all", fmt::format("{:.1f} GB/s", s.read_GBps_all));
  row("fp32 multiply-add", fmt::format("{:.0f} GFLOP/s", s.fp32_gflops));
  row("bf16 dot product", or_absent(s.bf16_gflops, "GFLOP/s"));
  row("int8 dot product", or_absent(s.int8_gops, "GOP/s"));
  row("barrier, 2 threads", s.barrier_ns ? fmt::format("{:.0f} ns", *s.barrier_ns) : "one processor only");
  for (const auto& w : m.warnings) fmt::print("{} {}\n", coloured(Colour::Yellow, "warning:", stdout), w);
}

Status run_doctor(bool json, int64_t threads) {
  Machine m = describe_machine();
  if (threads > m.threads)
    m.warnings.push_back(fmt::format("--threads {} is more than the {} that may be used; measured with {}", threads,
                                     m.threads, m.threads));
  const int used = threads > 0 ? static_cast<int>(std::min<int64_t>(threads, m.threads)) : m.threads;
  const MachineSpeed s = measure_machine(used);
  if (json) {
    fmt::print("{}\n", machine_json(m, s).dump());
  } else {
    print_table(m, s);
  }
  return Status::ok();
}

struct DoctorFlags {
  bool json = false;
  int64_t threads = 0;
};

}  // namespace

Command add_doctor(CLI::App& program) {
  auto flags = std::make_shared<DoctorFlags>();
  Command c;
  c.app = program.add_subcommand("doctor", "Measure and report this machine: bandwidth, peak arithmetic, warnings");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  add_integer(*c.app, "--threads", flags->threads, {0, 1024}, "threads of the figures for all; 0: every allowed one");
  c.app->footer("Each figure is the best of a few trials of some milliseconds; the whole takes about two seconds.");
  c.check = [] { return Status::ok(); };
  c.run = [flags] { return run_doctor(flags->json, flags->threads); };
  return c;
}

}  // namespace reprise::apps
