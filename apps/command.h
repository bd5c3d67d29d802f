// Command: one verb of the binary. add_*() declares its flags under the program and returns what to do with them:
// check() finds usage errors (exit 2), run() does the work (exit 1 when it fails).
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace reprise::service {
struct RunSettings;
}

namespace reprise::apps {

struct Command {
  CLI::App* app = nullptr;
  std::function<Status()> check;
  std::function<Status()> run;
  // Those of the model that the command runs, which may lie over several ranks; null where it opens none this time.
  // Left empty: its models are on one rank.
  std::function<service::RunSettings*()> over_ranks = {};
  // What a follower does where that is not to follow one engine.
  std::function<Status()> follow = {};
  bool as_threads = false;  // the command's ranks are threads, unless a launcher has started processes
};

Command add_generate(CLI::App& program);
Command add_chat(CLI::App& program);
Command add_embed(CLI::App& program);
Command add_serve(CLI::App& program);
Command add_bench_compare(CLI::App& bench);
Command add_bench_one_batch(CLI::App& bench);
Command add_bench_ops(CLI::App& bench);
Command add_bench_serving(CLI::App& bench);
Command add_bench_startup(CLI::App& bench);
Command add_graph_explain(CLI::App& graph);
Command add_graph_dump(CLI::App& graph);
Command add_graph_diff(CLI::App& graph);
Command add_graph_profile(CLI::App& graph);
Command add_graph_verify(CLI::App& graph);
Command add_eval_choice(CLI::App& eval);
Command add_eval_gsm8k(CLI::App& eval);
Command add_eval_mmmu(CLI::App& eval);
Command add_eval_perplexity(CLI::App& eval);
Command add_demo(CLI::App& program);
Command add_key_new(CLI::App& key);
Command add_pull(CLI::App& program);
Command add_models(CLI::App& program);
Command add_quantize(CLI::App& program);
Command add_doctor(CLI::App& program);
Command add_tune(CLI::App& program);
Command add_version(CLI::App& program);
Command add_completion(CLI::App& program);
Command add_help(CLI::App& program);

// What `pull smollm2` does (pull.cpp).
Status pull_default_model();

}  // namespace reprise::apps
