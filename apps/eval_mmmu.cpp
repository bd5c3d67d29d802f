// `reprise eval mmmu`: the share of questions about pictures that a model answers right.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <optional>

#include "api/text_generator.h"
#include "api/text_model.h"
#include "base/base64.h"
#include "base/elapsed.h"
#include "base/file.h"
#include "base/progress.h"
#include "command.h"
#include "common/asked_server.h"
#include "common/chosen_adapter.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "evaluation/mmmu.h"
#include "evaluation/text_file.h"
#include "images/decode.h"
#include "sched/image_prompt.h"

namespace reprise::apps {

using namespace api;

namespace {

struct MmmuFlags {
  ModelFlags model;
  std::string data_path, answers_file;
  AskedServer server;
  int64_t questions = 100;
  int64_t max_new_tokens = 2048;
  bool json = false;

  Status check() const {
    if (data_path.empty()) return invalid("--data-path FOLDER is needed: questions.jsonl and the images that it names");
    RETURN_IF_ERROR(server.check(model.model_path));
    return server.is_asked() ? Status::ok() : model.check();
  }
};

// The first of them in the order of their ids, as SGLang takes them.
Result<std::vector<evaluation::MmmuQuestion>> read_questions(const MmmuFlags& f) {
  ASSIGN_OR_RETURN(const std::vector<evaluation::JsonLine> lines,
                   evaluation::read_json_lines(f.data_path + "/questions.jsonl"));
  std::vector<evaluation::MmmuQuestion> out;
  for (const evaluation::JsonLine& line : lines) {
    ASSIGN_OR_RETURN(evaluation::MmmuQuestion q, evaluation::mmmu_question(line.json, line.place));
    out.push_back(std::move(q));
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  if (f.questions > 0 && static_cast<int64_t>(out.size()) > f.questions) out.resize(static_cast<size_t>(f.questions));
  return out;
}

Result<sched::GenerationRequest> request_of(const MmmuFlags& f, const evaluation::MmmuQuestion& q,
                                            const TextModel& text, const images::PatchRules& rules,
                                            int64_t image_token) {
  OrderedJson content = OrderedJson::array();
  if (!q.before.empty()) content.push_back({{"type", "text"}, {"text", q.before}});
  content.push_back({{"type", "image"}});
  if (!q.behind.empty()) content.push_back({{"type", "text"}, {"text", q.behind}});
  ASSIGN_OR_RETURN(const auto prompt, text.encode_chat(OrderedJson::array({{{"role", "user"}, {"content", content}}})));
  const std::string file = f.data_path + "/" + q.image;
  ASSIGN_OR_RETURN(const std::string bytes, read_file(file));
  auto image = sched::prepare_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, rules);
  if (!image) return image.status().at(file);
  ASSIGN_OR_RETURN(sched::ImagePrompt placed, sched::place_images(prompt, {std::move(*image)}, image_token));
  sched::GenerationRequest r;
  r.prompt = std::move(placed.tokens);
  r.images = std::move(placed.images);
  r.sampling.max_new_tokens = f.max_new_tokens;
  return r;
}

struct Score {
  size_t questions = 0, right = 0;
  double share() const { return static_cast<double>(right) / static_cast<double>(std::max<size_t>(questions, 1)); }
};

// What a model said to all questions.
struct MmmuSaid {
  std::vector<std::string> answers;
  int64_t tokens = 0, cut = 0;
  double seconds = 0;
};

Result<MmmuSaid> ask_engine(const MmmuFlags& f, const std::vector<evaluation::MmmuQuestion>& questions) {
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  const auto& vision = engine->config().vision;
  if (!vision) return error(Code::Unsupported, "{}", sched::reads_no_images(engine->config()));
  ASSIGN_OR_RETURN(const images::PatchRules rules,
                   sched::patch_rules(engine->options().model_path, *vision, engine->max_image_rows()));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  ASSIGN_OR_RETURN(const spec::SpecOptions speculation, f.model.speculation.options());
  ASSIGN_OR_RETURN(const ChosenAdapter adapter, ChosenAdapter::open(f.model, *engine));
  TextGenerator generator(*engine, text.tokenizer(), {!f.model.disable_radix_cache, speculation, adapter.get()});
  std::vector<TextResult> results;
  const auto begin = std::chrono::steady_clock::now();
  {
    constexpr size_t kTogether = 32;  // patches of a picture take megabytes
    Progress bar("mmmu", questions.size() * static_cast<uint64_t>(f.max_new_tokens));
    for (size_t first = 0; first < questions.size(); first += kTogether) {
      std::vector<sched::GenerationRequest> requests;
      for (size_t i = first; i < std::min(first + kTogether, questions.size()); ++i) {
        ASSIGN_OR_RETURN(auto r, request_of(f, questions[i], text, rules, vision->image_token));
        requests.push_back(std::move(r));
      }
      ASSIGN_OR_RETURN(auto some, generator.run(requests, [&](size_t, std::string_view) {
        bar.advance(1);
        return true;
      }));
      std::move(some.begin(), some.end(), std::back_inserter(results));
    }
  }
  MmmuSaid said;
  said.seconds = seconds_since(begin);
  for (TextResult& r : results) {
    said.tokens += static_cast<int64_t>(r.token_ids.size());
    said.cut += r.finish == sched::FinishReason::Length;
    said.answers.push_back(std::move(r.text).value_or(""));
  }
  return said;
}

Result<client::GenerationCall> question_call(const MmmuFlags& f, const evaluation::MmmuQuestion& q) {
  const std::string file = f.data_path + "/" + q.image;
  ASSIGN_OR_RETURN(const std::string bytes, read_file(file));
  const std::string_view format = images::image_format({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (format.empty()) return invalid("{}: no image; allowed: PNG, JPEG, WebP", file);
  OrderedJson content = OrderedJson::array();
  if (!q.before.empty()) content.push_back({{"type", "text"}, {"text", q.before}});
  content.push_back({{"type", "image_url"},
                     {"image_url", {{"url", fmt::format("data:image/{};base64,{}", format, base64_of(bytes))}}}});
  if (!q.behind.empty()) content.push_back({{"type", "text"}, {"text", q.behind}});
  return client::GenerationCall{std::move(content), 0, f.max_new_tokens};
}

// The same questions to /v1/chat/completions.
Result<MmmuSaid> ask_server(const MmmuFlags& f, const std::vector<evaluation::MmmuQuestion>& questions) {
  client::GenerationStyle style;
  style.endpoint = client::Endpoint::Chat;
  style.extra["separate_reasoning"] = false;  // thoughts are scored with the answer, as those of an engine of our own
  std::vector<client::GenerationCall> calls;
  for (const evaluation::MmmuQuestion& q : questions) {
    ASSIGN_OR_RETURN(client::GenerationCall call, question_call(f, q));
    calls.push_back(std::move(call));
  }
  ASSIGN_OR_RETURN(client::LoadRun run,
                   f.server.ask_all(calls, style, "mmmu", [&](size_t i) { return questions[i].id; }));
  MmmuSaid said;
  said.seconds = run.duration_s;
  for (client::GenerationRecord& r : run.records) {
    said.tokens += r.output_tokens;
    said.cut += r.finish_reason == "length";
    said.answers.push_back(std::move(r.text));
  }
  return said;
}

Status run_mmmu(const MmmuFlags& f) {
  ASSIGN_OR_RETURN(const auto questions, read_questions(f));
  ASSIGN_OR_RETURN(const MmmuSaid said, f.server.is_asked() ? ask_server(f, questions) : ask_engine(f, questions));
  Score all;
  std::map<std::string, Score> subjects;
  std::string answers;
  for (size_t i = 0; i < questions.size(); ++i) {
    const evaluation::MmmuQuestion& q = questions[i];
    const std::string& answer = said.answers[i];
    std::string got;
    const bool right = evaluation::mmmu_right(q, answer, &got);
    for (Score* s : {&all, &subjects[q.subject]}) ++s->questions, s->right += right;
    answers +=
        OrderedJson{{"id", q.id}, {"expected", q.answers}, {"got", got}, {"right", right}, {"text", answer}}.dump(
            -1, ' ', false, OrderedJson::error_handler_t::replace) +
        "\n";
  }
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
