// `reprise eval gsm8k`: the share of grade-school questions that a model answers right.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "api/default_model.h"
#include "api/text_generator.h"
#include "api/text_model.h"
#include "base/elapsed.h"
#include "base/file.h"
#include "base/progress.h"
#include "command.h"
#include "common/asked_server.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "evaluation/gsm8k.h"
#include "evaluation/text_file.h"

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
  AskedServer server;
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

Result<std::vector<Json>> read_questions(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<evaluation::JsonLine> lines, evaluation::read_json_lines(path));
  std::vector<Json> questions;
  for (evaluation::JsonLine& line : lines) questions.push_back(std::move(line.json));
  return questions;
}

Result<std::vector<evaluation::Gsm8kTask>> read_tasks(const Gsm8kFlags& f) {
  ASSIGN_OR_RETURN(std::vector<Json> questions, read_questions(f.data_path));
  std::vector<Json> shots;
  if (f.shots > 0) {
    // Without a file of their own the first questions are the solved ones, and are not asked.
    std::vector<Json> own;
    if (!f.shots_path.empty()) {
      ASSIGN_OR_RETURN(own, read_questions(f.shots_path));
    }
    std::vector<Json>& from = f.shots_path.empty() ? questions : own;
    const auto n = static_cast<size_t>(f.shots);
    if (from.size() < n + (f.shots_path.empty() ? 1 : 0))
      return invalid("{}: {} lines are too few for --num-shots {}", f.shots_path.empty() ? f.data_path : f.shots_path,
                     from.size(), f.shots);
    shots.assign(from.begin(), from.begin() + static_cast<int64_t>(n));
    if (f.shots_path.empty()) questions.erase(questions.begin(), questions.begin() + static_cast<int64_t>(n));
  }
  if (f.questions > 0 && static_cast<int64_t>(questions.size()) > f.questions)
    questions.resize(static_cast<size_t>(f.questions));
  auto tasks = evaluation::gsm8k_tasks(questions, shots);
  if (!tasks) return tasks.status().at(f.data_path);
  return tasks;
}

// What a model said to all tasks.
struct Said {
  std::vector<std::string> answers;
  int64_t tokens = 0;
  double seconds = 0;
};

Result<Said> ask_engine(const Gsm8kFlags& f, const std::vector<evaluation::Gsm8kTask>& tasks) {
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  std::vector<sched::GenerationRequest> requests;
  for (const evaluation::Gsm8kTask& task : tasks) {
    sched::GenerationRequest r;
    ASSIGN_OR_RETURN(r.prompt, text.encode(task.prompt));
    r.sampling.max_new_tokens = f.max_new_tokens;
    r.sampling.stop = evaluation::gsm8k_stops();
    requests.push_back(std::move(r));
  }
  ASSIGN_OR_RETURN(const spec::SpecOptions speculation, f.model.speculation.options());
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  TextGenerator generator(*engine, text.tokenizer(), {!f.model.disable_radix_cache, speculation, adapter.get()});
  std::vector<TextResult> results;
  const auto begin = std::chrono::steady_clock::now();
  {
    Progress bar("gsm8k", requests.size() * static_cast<uint64_t>(f.max_new_tokens));
    ASSIGN_OR_RETURN(results, generator.run(requests, [&](size_t, std::string_view) {
      bar.advance(1);
      return true;
    }));
  }
  Said said;
  said.seconds = seconds_since(begin);
  for (TextResult& r : results) {
    said.answers.push_back(std::move(r.text).value_or(""));
    said.tokens += static_cast<int64_t>(r.token_ids.size());
  }
  return said;
}

// The same questions to /v1/completions.
Result<Said> ask_server(const Gsm8kFlags& f, const std::vector<evaluation::Gsm8kTask>& tasks) {
  client::GenerationStyle style;
  style.stop = evaluation::gsm8k_stops();
  std::vector<client::GenerationCall> calls;
  for (const evaluation::Gsm8kTask& task : tasks) calls.push_back({task.prompt, 0, f.max_new_tokens});
  ASSIGN_OR_RETURN(client::LoadRun run,
                   f.server.ask_all(calls, style, "gsm8k", [](size_t i) { return std::to_string(i + 1); }));
  Said said;
  said.seconds = run.duration_s;
  for (client::GenerationRecord& r : run.records) {
    said.answers.push_back(std::move(r.text));
    said.tokens += r.output_tokens;
  }
  return said;
}

Status run_gsm8k(const Gsm8kFlags& f) {
  ASSIGN_OR_RETURN(const auto tasks, read_tasks(f));
  ASSIGN_OR_RETURN(const Said said, f.server.is_asked() ? ask_server(f, tasks) : ask_engine(f, tasks));

  int64_t right = 0, without = 0;
  std::string answers;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const std::string& answer = said.answers[i];
    const auto number = evaluation::last_number(answer);
    const bool good = number && evaluation::same_number(*number, tasks[i].expected);
    right += good;
    without += !number;
    answers +=
        OrderedJson{{"expected", tasks[i].expected}, {"got", number.value_or("")}, {"right", good}, {"text", answer}}
            .dump(-1, ' ', false, OrderedJson::error_handler_t::replace) +
        "\n";
  }
  if (!f.answers_file.empty()) RETURN_IF_ERROR(write_file_atomically(f.answers_file, answers));
  const auto n = static_cast<double>(tasks.size());
  if (f.json) {
    OrderedJson j;
    j["questions"] = tasks.size();
    j["accuracy"] = static_cast<double>(right) / n;
    j["invalid"] = static_cast<double>(without) / n;
    j["latency_s"] = said.seconds;
    j["output_tok_s"] = static_cast<double>(said.tokens) / said.seconds;
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("accuracy {:.3f}, invalid {:.3f} of {} questions; {:.1f} s, {:.1f} tokens/s of output\n",
               static_cast<double>(right) / n, static_cast<double>(without) / n, tasks.size(), said.seconds,
               static_cast<double>(said.tokens) / said.seconds);
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
