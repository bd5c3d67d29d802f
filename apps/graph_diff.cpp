// `reprise graph diff`: two dumps, compared node by node.
#include "see/graph_diff.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "command.h"
#include "common/flags.h"

namespace reprise::apps {

using namespace see;

namespace {

struct DiffFlags {
  std::vector<std::string> files;
  int64_t context = 2;
  bool json = false;
};

Result<GraphDoc> read_doc(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return doc_from(text, path);
}

// A difference is no failure of the work, so it has no message; like diff(1) it shows in the exit status.
Status run_diff(const DiffFlags& f) {
  ASSIGN_OR_RETURN(const GraphDoc a, read_doc(f.files[0]));
  ASSIGN_OR_RETURN(const GraphDoc b, read_doc(f.files[1]));
  const GraphDiff d = diff_graphs(a, b);
  if (f.json)
    fmt::print("{}\n", diff_json(d).dump());
  else
    fmt::print("{}{}", d.same() ? "" : fmt::format("A: {}\nB: {}\n", f.files[0], f.files[1]),
               diff_text(d, static_cast<int>(f.context)));
  return d.same() ? Status::ok() : Status(Code::Invalid, "");
}

}  // namespace

Command add_graph_diff(CLI::App& graph) {
  auto flags = std::make_shared<DiffFlags>();
  CLI::App* app =
      graph.add_subcommand("diff", "Two dumps compared: ops, layers, attributes; exit code 1 if they differ");
  app->add_option("dumps", flags->files, "text or JSON, of `reprise graph dump` or --dump-dir")
      ->type_name("A B")
      ->expected(2)
      ->required();
  add_integer(*app, "--context", flags->context, {0, 1000}, "nodes to show around each difference");
  add_switch(*app, "--json", flags->json, "one JSON object on standard output");
  app->footer("Value numbers, the graph's name and who made a node do not count.");
  return {app, [] { return Status::ok(); }, [flags] { return run_diff(*flags); }};
}

}  // namespace reprise::apps
