// `reprise eval choice`: the share of multiple-choice questions whose right ending a model finds the most probable.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "base/elapsed.h"
#include "base/file.h"
#include "command.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "evaluation/choice.h"
#include "evaluation/shown_progress.h"

namespace reprise::apps {

using namespace api;

namespace {

struct ChoiceFlags {
  ModelFlags model;
  std::string data_path;
  int64_t questions = 0;
  std::string answers_file;
  bool json = false;

  Status check() const { return model.check(); }
};

Status run_choice(const ChoiceFlags& f) {
  ASSIGN_OR_RETURN(const auto tasks, evaluation::read_choices(f.data_path, f.questions));
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  ASSIGN_OR_RETURN(auto texts, evaluation::choice_texts(tasks, text, adapter.get()));
  int64_t tokens = 0;
  for (const auto& t : texts) tokens += static_cast<int64_t>(t.tokens.size()) - 1;
  const auto begin = std::chrono::steady_clock::now();
  const auto scored = sched::Scorer(*engine).run(std::move(texts), evaluation::shown_progress("scoring", "tokens"));
  if (!scored) return scored.status().at(f.data_path.empty() ? evaluation::kBuiltin : f.data_path);
  const double seconds = seconds_since(begin);

  const evaluation::ChoiceScore score = evaluation::score_choices(tasks, *scored);
  if (!f.answers_file.empty()) RETURN_IF_ERROR(write_file_atomically(f.answers_file, score.answers));
  const auto n = static_cast<double>(score.questions);
  const double accuracy = static_cast<double>(score.right) / n, per_byte = static_cast<double>(score.right_by_byte) / n;
  if (f.json) {
    OrderedJson j;
    j["questions"] = score.questions;
    j["accuracy"] = accuracy;
    j["accuracy_per_byte"] = per_byte;
    j["latency_s"] = seconds;
    j["tok_s"] = static_cast<double>(tokens) / seconds;
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("accuracy {:.3f}, per byte {:.3f} of {} questions; {:.1f} s, {:.1f} tokens/s\n", accuracy, per_byte,
               score.questions, seconds, static_cast<double>(tokens) / seconds);
  }
  return Status::ok();
}

}  // namespace

Command add_eval_choice(CLI::App& eval) {
  auto flags = std::make_shared<ChoiceFlags>();
  flags->model.model_path = kDefaultModelName;
  Command c;
  c.app = eval.add_subcommand("choice", "Share of multiple-choice questions answered right");
  add_text(*c.app, "--data-path", flags->data_path,
           "JSON lines with \"context\", \"choices\" and \"answer\" (or \"ctx\", \"endings\", \"label\"); default: 40 "
           "built-in questions",
           "FILE");
  add_integer(*c.app, "--num-questions", flags->questions, {0, 1 << 24}, "so many of them; 0: all");
  add_text(*c.app, "--answers-file", flags->answers_file, "write every choice there as JSON lines", "FILE");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  flags->model.chooses_adapter = true;
  flags->model.add_to(*c.app);
  c.app->footer(
      "The choice is the ending whose tokens have the largest sum of log p behind the context; per byte: the largest\n"
      "sum over the ending's bytes. --json: {questions, accuracy, accuracy_per_byte, latency_s, tok_s}.");
  c.check = [flags] { return flags->check(); };
  c.over_ranks = [flags] { return &flags->model; };
  c.run = [flags] { return run_choice(*flags); };
  return c;
}

}  // namespace reprise::apps
