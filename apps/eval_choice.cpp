// `reprise eval choice`: the share of multiple-choice questions whose right ending a model finds the most probable.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "api/text_model.h"
#include "base/elapsed.h"
#include "base/file.h"
#include "base/progress.h"
#include "command.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "evaluation/choice.h"
#include "evaluation/text_scores.h"

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

// Every ending of every task behind its context; scored from where the tokens leave those of the context alone.
Result<std::vector<evaluation::TextToScore>> texts_of(const std::vector<evaluation::ChoiceTask>& tasks,
                                                      const TextModel& model) {
  std::vector<evaluation::TextToScore> texts;
  for (const evaluation::ChoiceTask& task : tasks) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> context, model.encode(task.context));
    for (const std::string& ending : task.endings) {
      evaluation::TextToScore text;
      ASSIGN_OR_RETURN(text.tokens, model.encode(task.context + ending));
      const auto [a, b] = std::mismatch(context.begin(), context.end(), text.tokens.begin(), text.tokens.end());
      text.from = std::max<int64_t>(1, a - context.begin());
      texts.push_back(std::move(text));
    }
  }
  return texts;
}

Result<std::vector<evaluation::TextScore>> score(engine::Engine& engine, std::vector<evaluation::TextToScore> texts) {
  std::unique_ptr<Progress> bar;
  int64_t shown = 0;
  return evaluation::score_texts(engine, std::move(texts), [&](int64_t now, int64_t total) {
    if (!bar) bar = std::make_unique<Progress>("scoring", static_cast<uint64_t>(total));
    bar->advance(static_cast<uint64_t>(now - shown), "tokens");
    shown = now;
  });
}

Status run_choice(const ChoiceFlags& f) {
  std::vector<evaluation::JsonLine> lines;
  if (f.data_path.empty()) {
    lines = evaluation::builtin_choices();
  } else {
    ASSIGN_OR_RETURN(lines, evaluation::read_json_lines(f.data_path));
  }
  if (f.questions > 0 && lines.size() > static_cast<size_t>(f.questions))
    lines.resize(static_cast<size_t>(f.questions));
  ASSIGN_OR_RETURN(const std::vector<evaluation::ChoiceTask> tasks, evaluation::choice_tasks(lines));
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  ASSIGN_OR_RETURN(std::vector<evaluation::TextToScore> texts, texts_of(tasks, text));
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  for (auto& t : texts) t.adapter = adapter.slot();
  int64_t tokens = 0;
  for (const auto& t : texts) tokens += static_cast<int64_t>(t.tokens.size()) - 1;
  const auto begin = std::chrono::steady_clock::now();
  auto scored = score(*engine, std::move(texts));
  if (!scored) return scored.status().at(f.data_path.empty() ? evaluation::kBuiltin : f.data_path);
  const double seconds = seconds_since(begin);

  size_t right = 0, right_by_byte = 0, next = 0;
  std::string answers;
  for (const evaluation::ChoiceTask& task : tasks) {
    std::vector<double> log_p;
    for (size_t i = 0; i < task.endings.size(); ++i) log_p.push_back((*scored)[next++].log_p);
    const evaluation::Choice choice = evaluation::choose(task, log_p);
    right += choice.by_sum == task.answer;
    right_by_byte += choice.by_byte == task.answer;
    const OrderedJson line{
        {"answer", task.answer}, {"choice", choice.by_sum}, {"choice_per_byte", choice.by_byte}, {"log_p", log_p}};
    answers += line.dump() + "\n";
  }
  if (!f.answers_file.empty()) RETURN_IF_ERROR(write_file_atomically(f.answers_file, answers));
  const auto n = static_cast<double>(tasks.size());
  const double accuracy = static_cast<double>(right) / n, per_byte = static_cast<double>(right_by_byte) / n;
  if (f.json) {
    OrderedJson j;
    j["questions"] = tasks.size();
    j["accuracy"] = accuracy;
    j["accuracy_per_byte"] = per_byte;
    j["latency_s"] = seconds;
    j["tok_s"] = static_cast<double>(tokens) / seconds;
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("accuracy {:.3f}, per byte {:.3f} of {} questions; {:.1f} s, {:.1f} tokens/s\n", accuracy, per_byte,
               tasks.size(), seconds, static_cast<double>(tokens) / seconds);
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
