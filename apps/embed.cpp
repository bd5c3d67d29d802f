// `reprise embed`: vectors of texts, or scores of documents for a query, as JSON or as a NumPy file.
#include <CLI/CLI.hpp>
#include <bit>
#include <cstdio>
#include <fstream>
#include <memory>

#include "api/text_embedder.h"
#include "command.h"
#include "common/flags.h"
#include "common/model_flags.h"
#include "common/standard_input.h"

namespace reprise::apps {

using namespace api;

namespace {

struct EmbedFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::optional<std::string> query, prompt_name;
  std::string instruction, npy;
  bool truncate = false, json = false;
  int64_t dimensions = 0;

  Status check() const {
    RETURN_IF_ERROR(model.check());
    if (query && (dimensions != 0 || !npy.empty() || prompt_name))
      return invalid("--query asks for scores; --dimensions, --npy and --prompt-name are of vectors");
    if (!query && !instruction.empty()) return invalid("--instruction needs --query");
    return Status::ok();
  }
};

// Those of the command line, or the lines of standard input.
Result<std::vector<std::string>> texts_of(const EmbedFlags& f) {
  if (!f.texts.empty()) return f.texts;
  ASSIGN_OR_RETURN(const std::string input, read_standard_input("standard input"));
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < input.size();) {
    const size_t end = std::min(input.find('\n', begin), input.size());
    lines.push_back(input.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.empty()) return invalid("no texts: give them with --text, or as lines of standard input");
  return lines;
}

// The format's version 1.0: magic, header length, header, numbers in order.
Status write_npy(const std::string& path, const std::vector<std::vector<float>>& rows) {
  static_assert(std::endian::native == std::endian::little);
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows.size(), rows.front().size());
  constexpr size_t kPrefix = 10, kAlign = 64;
  header.append(kAlign - (kPrefix + header.size() + 1) % kAlign, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8);
  out.put(static_cast<char>(header.size() & 0xFF)).put(static_cast<char>(header.size() >> 8));
  out << header;
  for (const auto& row : rows)
    out.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
  out.flush();
  return out ? Status::ok() : error(Code::Invalid, "{}: cannot be written", path);
}

Status print_scores(const EmbedFlags& f, TextEmbedder& embedder, const std::vector<std::string>& texts) {
  EmbedOptions options;
  options.instruction = f.instruction;
  ASSIGN_OR_RETURN(const ScoredTexts scored, embedder.score(*f.query, texts, options));
  if (f.json) {
    OrderedJson j;
    j["model"] = short_name(f.model.model_path);
    j["scores"] = scored.scores;
    j["usage"] = {{"prompt_tokens", scored.tokens}, {"total_tokens", scored.tokens}};
    fmt::print("{}\n", j.dump());
    return Status::ok();
  }
  for (size_t i = 0; i < texts.size(); ++i) fmt::print("{:.6f}  {}\n", scored.scores[i], texts[i]);
  return Status::ok();
}

Status run_embed(const EmbedFlags& f) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, texts_of(f));
  ASSIGN_OR_RETURN(auto engine, open_engine(f.model));
  ASSIGN_OR_RETURN(const TextModel text, TextModel::open(f.model, "", *engine));
  say_quiet_start(f.model, *engine);
  TextEmbedder embedder(*engine, text.tokenizer());
  if (f.query) return print_scores(f, embedder, texts);
  ASSIGN_OR_RETURN(const EmbeddedTexts done, embedder.embed(texts, {f.prompt_name, f.truncate, f.dimensions, {}}));
  if (!f.npy.empty()) return write_npy(f.npy, done.rows);
  if (f.json) {
    OrderedJson j;
    j["model"] = short_name(f.model.model_path);
    j["embeddings"] = done.rows;
    j["usage"] = {{"prompt_tokens", done.tokens}, {"total_tokens", done.tokens}};
    fmt::print("{}\n", j.dump());
    return Status::ok();
  }
  for (const auto& row : done.rows) fmt::print("{}\n", OrderedJson(row).dump());
  return Status::ok();
}

}  // namespace

Command add_embed(CLI::App& program) {
  auto flags = std::make_shared<EmbedFlags>();
  Command c;
  c.app = program.add_subcommand("embed", "Vectors of texts, or scores of documents for a query");
  add_texts(*c.app, "--text", flags->texts, "a text; repeatable. Default: the lines of standard input", "TEXT");
  add_text(*c.app, "--query", flags->query, "score the texts as answers to this one; needs a reranker", "TEXT");
  add_text(*c.app, "--instruction", flags->instruction, "what the query asks for, of rerankers that are told", "TEXT");
  add_text(*c.app, "--prompt-name", flags->prompt_name,
           "the model's prompt to put before each text (config_sentence_transformers.json)", "NAME");
  add_integer(*c.app, "--dimensions", flags->dimensions, {0, 1 << 20},
              "numbers of a vector, where the model's may be cut; 0: all");
  add_switch(*c.app, "--truncate", flags->truncate, "texts that are too long lose their ends; else they are an error");
  add_text(*c.app, "--npy", flags->npy, "write the vectors to this NumPy file, [texts, numbers] float32", "FILE");
  add_switch(*c.app, "--json", flags->json, "one JSON object on standard output");
  flags->model.quiet_start = true;
  flags->model.add_to(*c.app);
  c.app->footer(
      "Without --json each vector is one line of JSON. --json: {model, embeddings, usage}, with --query {model,\n"
      "scores, usage}. First steps: reprise pull minilm; reprise embed minilm --text \"Hello\".");
  c.check = [flags] { return flags->check(); };
  c.over_ranks = [flags] { return &flags->model; };
  c.run = [flags] { return run_embed(*flags); };
  return c;
}

}  // namespace reprise::apps
