// PassManager: runs passes in the order they were added, with everything that makes a wrong answer easy to corner:
// switches by name, a limit on the number of changes, the graph after any pass, a verifier run after each, and a report
// per pass.
//
// Errors of a pass stop the run and name the pass; none is swallowed. Owned by the code that builds a pipeline; one
// thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/pass.h"

namespace reprise {

struct PassOptions {
  // "all", "none", or names of the optional passes to run. Required passes always run.
  std::vector<std::string> enable{"all"};
  std::vector<std::string> disable{};
  // Names left out for another reason than the user's wish; the reason in words.
  std::vector<std::string> leave_out{};
  std::string leave_out_reason{};
  std::vector<std::string> print_after{};  // names, or "all"
  // Changes that optional passes may make, over the whole pipeline; negative: any number.
  int64_t bisect_limit = -1;
  std::string dump_dir{};  // NN-name.before.txt and NN-name.after.txt of every pass that ran; empty: none
  bool verify_each = true;
  bool keep_graphs = false;  // PassReport::graph
  // Where --print-after goes; standard error when empty.
  std::function<void(std::string_view text)> print{};
};

// "a,b,c" to names, for flags.
std::vector<std::string> split_names(std::string_view list);

class PassManager {
 public:
  // Names are unique.
  Status add(Pass pass);
  Status add(Result<Pass> pass) { return pass.is_ok() ? add(std::move(*pass)) : pass.status(); }
  std::vector<std::string> names() const;

  // Unknown names in the options are an error that lists the known ones, former names one that gives today's.
  Result<std::vector<PassReport>> run(Graph& graph, PassContext& context, const PassOptions& options) const;

 private:
  Status check(const PassOptions& options, const OpRegistry& ops) const;
  // Empty when the pass runs.
  static std::string why_skipped(const Pass& pass, const PassOptions& options);

  std::vector<Pass> passes_;
};

}  // namespace reprise
