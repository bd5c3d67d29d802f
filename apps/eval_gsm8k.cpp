// `reprise eval gsm8k`: the share of grade-school questions that a model answers right.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "base/file.h"
#include "command.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/server_flags.h"
#include "evaluation/gsm8k.h"

namespace reprise::apps {

using namespace api;

namespace {

struct Gsm8kFlags {
  ModelFlags model;
  std::string data_path, shots_path;
  int64_t questions = 200;
  int64_t shots = 5;
  int64_t max_new_tokens = 512;
  std::string answers_file;
  ServerFlags server;
  bool json = false;

  Status check() {
    RETURN_IF_ERROR(server.check(model.model_path));
    if (!server.is_asked()) {
      if (model.model_path.empty()) model.model_path = kDefaultModelName;
      RETURN_IF_ERROR(model.check());
    }
    if (data_path.empty()) return invalid("--data-path FILE is needed: JSON lines with \"question\" and \"answer\"");
    return Status::ok();
  }
};

Result<evaluation::Answers> ask(const Gsm8kFlags& f, const std::vector<evaluation::Gsm8kTask>& tasks) {
  if (f.server.is_asked()) return evaluation::ask_gsm8k(f.server.place(), tasks, f.max_new_tokens);
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  ASSIGN_OR_RETURN(const spec::SpecOptions speculation, f.model.speculation.options());
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  TextGenerator generator(*engine, text.tokenizer(), {!f.model.disable_radix_cache, speculation, adapter.get()});
  return evaluation::ask_gsm8k(generator, text, tasks, f.max_new_tokens);
}

Status run_gsm8k(const Gsm8kFlags& f) {
  ASSIGN_OR_RETURN(const auto tasks,
                   evaluation::read_gsm8k({f.data_path, f.shots_path, f.questions, f.shots, "--num-shots"}));
  ASSIGN_OR_RETURN(const evaluation::Answers said, ask(f, tasks));
  const evaluation::Gsm8kScore score = evaluation::score_gsm8k(tasks, said.texts);
  if (!f.answers_file.empty()) RETURN_IF_ERROR(write_file_atomically(f.answers_file, score.answers));
  const auto n = static_cast<double>(score.questions);
  const double accuracy = static_cast<double>(score.right) / n, without = static_cast<double>(score.without) / n;
  const double tok_s = static_cast<double>(said.tokens) / said.seconds;
  if (f.json) {
    OrderedJson j;
    j["questions"] = score.questions;
    j["accuracy"] = accuracy;
    j["invalid"] = without;
    j["latency_s"] = said.seconds;
    j["output_tok_s"] = tok_s;
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("accuracy {:.3f}, invalid {:.3f} of {} questions; {:.1f} s, {:.1f} tokens/s of output\n", accuracy,
               without, score.questions, said.seconds, tok_s);
  }
  return Status::ok();
}

}  // namespace

Command add_eval_gsm8k(CLI::App& eval) {
  auto flags = std::make_shared<Gsm8kFlags>();
  Command c;
  c.app = eval.add_subcommand("gsm8k", "Share of grade-school questions answered right");
  add_text(*c.app, "--data-path", flags->data_path, "JSON lines with \"question\" and \"answer\"", "FILE");
  add_text(*c.app, "--shots-path", flags->shots_path, "solved questions from another file (default: the first ones)",
           "FILE");
  add_integer(*c.app, "--num-questions", flags->questions, {0, 1 << 24}, "so many of them; 0: all");
  add_integer(*c.app, "--num-shots", flags->shots, {0, 1000}, "solved questions in front of each");
  add_integer(*c.app, "--max-new-tokens", flags->max_new_tokens, {1, 1 << 24}, "of each answer");
  add_text(*c.app, "--answers-file", flags->answers_file, "write every answer there as JSON lines", "FILE");
  flags->server.add_to(*c.app);
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  flags->model.chooses_adapter = true;
  flags->model.add_to(*c.app);
  c.app->footer(
      "Greedy answers; the last number of each is compared with the one behind \"####\". invalid: the share without\n"
      "any number. With --base-url the questions go to /v1/completions of a server, --parallel at a time. --json: "
      "{questions, accuracy, invalid, latency_s, output_tok_s}.");
  c.check = [flags] { return flags->check(); };
  c.over_ranks = [flags] { return flags->server.is_asked() ? nullptr : &flags->model; };
  c.run = [flags] { return run_gsm8k(*flags); };
  return c;
}

}  // namespace reprise::apps
