// `reprise generate`: one prompt to text, streaming; or a file of prompts as one batch.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "api/prompt_media.h"
#include "api/sampling_settings.h"
#include "api/text_generator.h"
#include "api/text_model.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/terminal.h"
#include "command.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/media_flags.h"
#include "common/model_flags.h"
#include "common/report.h"
#include "common/standard_input.h"
#include "evaluation/text_file.h"
#include "settings/values.h"

namespace reprise::apps {

using namespace api;

namespace {

struct GenerateFlags {
  ModelFlags model;
  SamplingSettings sampling;
  std::optional<std::string> prompt, prompt_ids, prompts_file, system;
  std::string chat_template;
  MediaFlags media;
  bool apply_chat_template = false;
  bool json = false;
  bool summary = false;

  Status check() const {
    RETURN_IF_ERROR(model.check());
    RETURN_IF_ERROR(sampling.check());
    if (prompt.has_value() + prompt_ids.has_value() + prompts_file.has_value() != 1)
      return invalid("exactly one of --prompt, --prompt-ids and --prompts-file is needed");
    if (media.any() && prompts_file) return invalid("--image and --video cannot go with --prompts-file");
    if (!media.video.empty() && prompt_ids) return invalid("--video cannot go with --prompt-ids");
    if (media.fps && media.video.empty()) return invalid("--fps needs --video");
    if (!apply_chat_template && system) return invalid("--system needs --apply-chat-template");
    if (!apply_chat_template && !chat_template.empty()) return invalid("--chat-template needs --apply-chat-template");
    if (apply_chat_template && prompt_ids) return invalid("--prompt-ids cannot go with --apply-chat-template");
    if (prompt_ids) RETURN_IF_ERROR(settings::parse_integers(*prompt_ids, {0, INT32_MAX}).status().at("--prompt-ids"));
    return Status::ok();
  }
};

// The prompts as text; none of them with --prompt-ids.
Result<std::vector<std::string>> prompt_texts(const GenerateFlags& f) {
  if (f.prompts_file) return evaluation::read_prompts(*f.prompts_file);
  if (!f.prompt) return std::vector<std::string>();
  if (*f.prompt != "-") return std::vector<std::string>{*f.prompt};
  if (is_terminal(stdin)) fmt::print(stderr, "the prompt is read from here; Ctrl-D ends it\n");
  ASSIGN_OR_RETURN(std::string text, read_standard_input("--prompt -"));
  return std::vector<std::string>{std::move(text)};
}

Result<std::vector<std::vector<int32_t>>> encode_prompts(const GenerateFlags& f, const std::vector<std::string>& texts,
                                                         const TextModel& model, const PromptMedia& media) {
  std::vector<std::vector<int32_t>> out;
  if (f.prompt_ids) {
    ASSIGN_OR_RETURN(auto ids, settings::parse_integers(*f.prompt_ids, {0, INT32_MAX}));
    out.emplace_back(ids.begin(), ids.end());
  }
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(auto ids, encode_prompt(model, text, {f.apply_chat_template, f.system}, f.media, media));
    out.push_back(std::move(ids));
  }
  return out;
}

std::string as_ids(const std::vector<int32_t>& ids) { return fmt::format("{}", fmt::join(ids, ",")); }

// An answer that simply ends looks complete.
void say_what_was_cut(const GenerateFlags& f, const std::vector<TextResult>& results, int64_t context_length) {
  std::string first;
  size_t count = 0;
  for (const TextResult& r : results) {
    const std::string cut = cut_at(r, f.sampling.max_new_tokens, context_length);
    if (cut.empty()) continue;
    if (count++ == 0) first = cut;
  }
  if (count == 0 || f.sampling.ignore_eos) return;
  const std::string which =
      results.size() == 1 ? "the answer was" : fmt::format("{} of {} answers were", count, results.size());
  log::notice("{} cut at {}", which, first);
}

void print_results(const std::vector<TextResult>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results.size() > 1) fmt::print("{}\n", coloured(Colour::Dim, fmt::format("--- {}", i), stdout));
    fmt::print("{}\n", results[i].text ? *results[i].text : as_ids(results[i].token_ids));
  }
}

Status run_generate(const GenerateFlags& f) {
  // Before the model is loaded: what is wrong here is quickly said.
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, prompt_texts(f));
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, f.chat_template, *engine));
  ASSIGN_OR_RETURN(const PromptMedia media, PromptMedia::read(f.media, *engine));
  ASSIGN_OR_RETURN(auto prompts, encode_prompts(f, texts, text, media));
  say_quiet_start(f.model, *engine);
  std::vector<sched::GenerationRequest> requests;
  for (auto& p : prompts) requests.push_back({std::move(p), f.sampling.params(text.defaults(), f.model.random_seed)});
  for (auto& r : requests) RETURN_IF_ERROR(media.place(r));

  ASSIGN_OR_RETURN(const spec::SpecOptions speculation, f.model.speculation.options());
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  TextGenerator generator(*engine, text.tokenizer(), {!f.model.disable_radix_cache, speculation, adapter.get()});
  const bool streaming = !f.json && requests.size() == 1 && text.tokenizer();
  const bool person = is_terminal(stdout);
  std::vector<TextResult> results;
  {
    uint64_t tokens = 0;
    for (const auto& r : requests) tokens += static_cast<uint64_t>(r.sampling.max_new_tokens);
    Progress bar("generating", tokens, !streaming);
    const auto sink = [&](size_t, std::string_view piece) {
      if (streaming && !piece.empty()) write_now(person ? visible(piece) : std::string(piece), stdout);
      bar.advance(1);
      return true;
    };
    ASSIGN_OR_RETURN(results, generator.run(requests, sink));
  }
  if (f.json) {
    // Text that is not valid UTF-8 cannot come out of a tokenizer, but JSON must never fail to print.
    fmt::print("{}\n",
               generate_json(f.model.model_path, *engine, generator, requests, results, f.prompts_file.has_value())
                   .dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  } else if (streaming) {
    write_now("\n", stdout);
  } else {
    print_results(results);
  }
  say_what_was_cut(f, results, engine->context_length());
  if (f.summary) print_summary(*engine, generator, results);
  return Status::ok();
}

}  // namespace

Command add_generate(CLI::App& program) {
  auto flags = std::make_shared<GenerateFlags>();
  flags->model.quiet_start = true;
  Command c;
  c.app = program.add_subcommand("generate", "Continue a prompt, or answer it, streaming the text");
  CLI::App& app = *c.app;
  app.option_defaults()->group("Prompt");
  add_text(app, "-p,--prompt", flags->prompt, "raw text to continue; -: standard input");
  add_text(app, "--prompt-ids", flags->prompt_ids, "the prompt as token ids; needs no tokenizer", "N,N,...");
  add_text(app, "--prompts-file", flags->prompts_file, "JSON lines with \"prompt\" or \"question\", run as one batch",
           "FILE");
  add_switch(app, "--apply-chat-template", flags->apply_chat_template, "wrap the prompt as a user's message");
  add_text(app, "--system,--system-prompt", flags->system, "system message in front of it");
  add_text(app, "--chat-template", flags->chat_template,
           "Jinja file, or chatml or llama-2, in place of the model's own template", "FILE");
  flags->media.add_to(app);
  app.option_defaults()->group("Output");
  add_switch(app, "--json", flags->json, "one JSON object on standard output, nothing else");
  add_switch(app, "--summary", flags->summary, "speed, graphs and memory at the end (standard error)");
  add_integer(app, "--logprobs", flags->sampling.logprobs, {0, 1 << 20},
              "with --json: each token's log-probability and the N likeliest");
  add_settings(app, flags->sampling.bindings());
  flags->model.chooses_adapter = true;
  flags->model.add_to(app);
  app.footer(
      "--json: {model, prompt_tokens, output: {text, token_ids, finish_reason}, timing, graph}; with --prompts-file\n"
      "{model, results: [{prompt_tokens, output}, ...], timing, graph}, in the order of the file. text is null when "
      "the\n"
      "model has no tokenizer. Exit codes: 0 ok, 1 the work failed, 2 the command line is wrong.");
  c.check = [flags] { return flags->check(); };
  c.over_ranks = [flags] { return &flags->model; };
  c.run = [flags] { return run_generate(*flags); };
  return c;
}

}  // namespace reprise::apps
