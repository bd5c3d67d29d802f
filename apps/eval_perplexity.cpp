// `reprise eval perplexity`: how well a model predicts a text.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/default_model.h"
#include "api/text_model.h"
#include "command.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "evaluation/perplexity.h"
#include "evaluation/shown_progress.h"
#include "evaluation/text_file.h"

namespace reprise::apps {

using namespace api;

namespace {

struct PerplexityFlags {
  ModelFlags model;
  std::string text_file;
  int64_t window = 512;
  int64_t max_windows = 0;
  bool json = false;

  Status check() const { return model.check(); }
};

Status run_perplexity(const PerplexityFlags& f) {
  std::string content;
  if (f.text_file.empty()) {
    content = evaluation::builtin_text();
  } else {
    ASSIGN_OR_RETURN(content, evaluation::read_evaluation_text(f.text_file));
  }
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  ASSIGN_OR_RETURN(const auto tokens, text.encode(content));
  evaluation::PerplexityOptions options;
  options.window = f.window;
  options.max_windows = f.max_windows;
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  options.adapter = adapter.get();
  if (const auto bos = engine->config().bos_token_id) options.bos = static_cast<int32_t>(*bos);
  const auto done = evaluation::perplexity(*engine, tokens, options, evaluation::shown_progress("scoring", "tokens"));
  if (!done) return done.status().at(f.text_file.empty() ? evaluation::kBuiltin : f.text_file);
  const evaluation::Perplexity& p = *done;
  if (f.json) {
    OrderedJson j;
    j["tokens"] = p.tokens;
    j["windows"] = p.windows;
    j["window"] = f.window;
    j["perplexity"] = p.perplexity;
    j["mean_nll"] = p.mean_nll;
    j["standard_error"] = p.standard_error;
    j["latency_s"] = p.seconds;
    j["tok_s"] = static_cast<double>(p.tokens) / p.seconds;
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("perplexity {:.4f}  ({:.5f} +- {:.5f} nats a token, {} tokens in {} windows of {}, {:.1f} s)\n",
               p.perplexity, p.mean_nll, p.standard_error, p.tokens, p.windows, f.window, p.seconds);
  }
  return Status::ok();
}

}  // namespace

Command add_eval_perplexity(CLI::App& eval) {
  auto flags = std::make_shared<PerplexityFlags>();
  flags->model.model_path = kDefaultModelName;
  Command c;
  c.app = eval.add_subcommand("perplexity", "How well the model predicts a text");
  add_text(*c.app, "--text-file", flags->text_file,
           "plain text, or .jsonl with \"text\", \"prompt\" or \"question\"; default: a built-in story of 1,158 words",
           "FILE");
  add_integer(*c.app, "--window", flags->window, {2, 1 << 24}, "tokens the model sees at most before each");
  add_integer(*c.app, "--max-windows", flags->max_windows, {0, 1 << 24}, "stop after so many; 0: the whole text");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  flags->model.chooses_adapter = true;
  flags->model.add_to(*c.app);
  c.app->footer(
      "The text is cut into windows that do not overlap, each read from its own beginning (after the model's\n"
      "begin-of-text token, if it has one); perplexity = exp(mean of -log p) over all tokens but a window's first.\n"
      "--json: {tokens, windows, window, perplexity, mean_nll, standard_error, latency_s, tok_s}.");
  c.check = [flags] { return flags->check(); };
  c.over_ranks = [flags] { return &flags->model; };
  c.run = [flags] { return run_perplexity(*flags); };
  return c;
}

}  // namespace reprise::apps
