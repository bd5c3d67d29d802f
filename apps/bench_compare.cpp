// `reprise bench compare`: two reports of the other benchmarks, where they may be compared.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "base/terminal.h"
#include "command.h"
#include "common/flags.h"
#include "measurement/comparison.h"

namespace reprise::apps {
namespace {

struct CompareFlags {
  std::vector<std::string> files;
  bool across_machines = false;
  bool json = false;
};

Result<OrderedJson> read_report(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_ordered_json(text, path);
}

Status run_compare(const CompareFlags& f) {
  ASSIGN_OR_RETURN(const OrderedJson before, read_report(f.files[0]));
  ASSIGN_OR_RETURN(const OrderedJson after, read_report(f.files[1]));
  ASSIGN_OR_RETURN(const measurement::Comparison c, measurement::compare_reports(before, after));
  if (!c.obstacles.empty() && !f.across_machines)
    return error(Code::Unsupported,
                 "a ratio would say nothing about the program: {}. Measure both on one quiet machine, or give "
                 "--across-machines to see the ratios all the same",
                 fmt::join(c.obstacles, "; "));
  if (f.json) {
    fmt::print("{}\n", measurement::comparison_json(c).dump());
    return Status::ok();
  }
  for (const std::string& o : c.obstacles)
    fmt::print("{} {}\n", coloured(Colour::Yellow, "not the same machine:", stdout), o);
  fmt::print("{}", measurement::comparison_text(c));
  return Status::ok();
}

}  // namespace

Command add_bench_compare(CLI::App& bench) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* app = bench.add_subcommand("compare", "Two reports of a benchmark, row by row, if they are of one machine");
  app->add_option("reports", flags->files, "what `reprise bench ... --json` printed, before and after a change")
      ->type_name("BEFORE AFTER")
      ->expected(2)
      ->required();
  add_switch(*app, "--across-machines", flags->across_machines, "compare although the machines or their load differ");
  add_switch(*app, "--json", flags->json, "one JSON object on standard output");
  app->footer(
      "Refused are reports of different processors, instruction sets, threads or devices, with bandwidths or peaks "
      "more\n"
      "than 10 % apart, measured beside other load, or without the machine's limits. Exit codes: 0 compared, 1 "
      "refused.");
  return {app, [] { return Status::ok(); }, [flags] { return run_compare(*flags); }};
}

}  // namespace reprise::apps
