// `reprise eval mmmu`: the share of questions about pictures that a model answers right.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "command.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/server_flags.h"
#include "evaluation/mmmu.h"

namespace reprise::apps {

using namespace api;

namespace {

struct MmmuFlags {
  ModelFlags model;
  std::string data_path, answers_file;
  ServerFlags server;
  int64_t questions = 100;
  int64_t max_new_tokens = 2048;
  bool json = false;

  Status check() const {
    if (data_path.empty()) return invalid("--data-path FOLDER is needed: questions.jsonl and the images that it names");
    RETURN_IF_ERROR(server.check(model.model_path));
    return server.is_asked() ? Status::ok() : model.check();
  }
};

Result<evaluation::Answers> ask(const MmmuFlags& f, const std::vector<evaluation::MmmuQuestion>& questions) {
  if (f.server.is_asked()) return evaluation::ask_mmmu(f.server.place(), questions, f.data_path, f.max_new_tokens);
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  ASSIGN_OR_RETURN(const spec::SpecOptions speculation, f.model.speculation.options());
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  TextGenerator generator(*engine, text.tokenizer(), {!f.model.disable_radix_cache, speculation, adapter.get()});
  return evaluation::ask_mmmu(generator, text, *engine, questions, f.data_path, f.max_new_tokens);
}

Status run_mmmu(const MmmuFlags& f) {
  ASSIGN_OR_RETURN(const auto questions, evaluation::read_mmmu(f.data_path, f.questions));
  ASSIGN_OR_RETURN(const evaluation::Answers said, ask(f, questions));
  const evaluation::MmmuScore score = evaluation::score_mmmu(questions, said.texts);
  const auto& [all, subjects, answers] = score;
  if (!f.answers_file.empty()) RETURN_IF_ERROR(write_file_atomically(f.answers_file, answers));
  if (!f.json) {
    for (const auto& [name, s] : subjects)
      if (!name.empty()) fmt::print("{:.3f} of {} questions: {}\n", s.share(), s.questions, name);
    fmt::print("accuracy {:.3f} of {} questions, {} answers were cut; {:.1f} s, {:.1f} tokens/s of output\n",
               all.share(), all.questions, said.cut, said.seconds, static_cast<double>(said.tokens) / said.seconds);
    return Status::ok();
  }
  OrderedJson by_subject = OrderedJson::object();
  for (const auto& [name, s] : subjects) by_subject[name] = {{"questions", s.questions}, {"accuracy", s.share()}};
  const OrderedJson j = {{"questions", all.questions},
                         {"accuracy", all.share()},
                         {"cut", said.cut},
                         {"subjects", by_subject},
                         {"latency_s", said.seconds},
                         {"output_tok_s", static_cast<double>(said.tokens) / said.seconds}};
  fmt::print("{}\n", j.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  return Status::ok();
}

}  // namespace

Command add_eval_mmmu(CLI::App& eval) {
  auto flags = std::make_shared<MmmuFlags>();
  Command c;
  c.app = eval.add_subcommand("mmmu", "Share of questions about pictures answered right");
  add_text(*c.app, "--data-path", flags->data_path, "questions.jsonl in MMMU's fields, and the images that it names",
           "FOLDER");
  add_integer(*c.app, "--num-questions", flags->questions, {0, 1 << 24}, "the first of them by id; 0: all");
  add_integer(*c.app, "--max-new-tokens", flags->max_new_tokens, {1, 1 << 24}, "of each answer");
  add_text(*c.app, "--answers-file", flags->answers_file, "write every answer there as JSON lines", "FILE");
  flags->server.add_to(*c.app);
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  flags->model.chooses_adapter = true;
  flags->model.add_to(*c.app);
  c.app->footer(
      "Greedy answers through the chat template, asked and scored as SGLang does (sglang.test.simple_eval_mmmu_vlm): "
      "the\n"
      "first image of a question alone, thinking before the answer; without any sign of a choice the first option "
      "counts. With --base-url the questions go to /v1/chat/completions of a server.\n--json: {questions, accuracy, "
      "cut, subjects, latency_s, output_tok_s}.");
  c.check = [flags] { return flags->check(); };
  c.over_ranks = [flags] { return flags->server.is_asked() ? nullptr : &flags->model; };
  c.run = [flags] { return run_mmmu(*flags); };
  return c;
}

}  // namespace reprise::apps
