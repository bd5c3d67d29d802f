// TextEmbedder: texts in, vectors or scores out: joins the Embedder with the text side of a model. One thread at a
// time; what it is made of outlives it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/text_model.h"
#include "sched/embedder.h"

namespace reprise::api {

struct EmbedOptions {
  std::optional<std::string> prompt_name = {};  // of the model's prompts; none: its default one
  bool truncate = false;                        // longer texts lose their ends; else they are an error
  int64_t dimensions = 0;                       // of the vectors, which are cut to so many numbers; 0: the model's
  std::string instruction = {};                 // of rerankers that are told one; "": the usual one
};

struct EmbeddedTexts {
  std::vector<std::vector<float>> rows;  // a vector for each text
  int64_t tokens = 0;                    // of all of them
};
struct ScoredTexts {
  std::vector<float> scores;
  int64_t tokens = 0;
};

class TextEmbedder {
 public:
  TextEmbedder(engine::Engine& engine, const text::Tokenizer* tokenizer)
      : engine_(engine), tokenizer_(tokenizer), embedder_(engine) {}

  Result<EmbeddedTexts> embed(std::span<const std::string> texts, const EmbedOptions& options = {});
  Result<EmbeddedTexts> embed_tokens(std::vector<sched::EmbeddingRequest> texts, int64_t dimensions = 0);
  // How well each document answers the query, from 0 to 1.
  Result<ScoredTexts> score(std::string_view query, std::span<const std::string> documents,
                            const EmbedOptions& options = {});

 private:
  Status want_tokenizer() const;
  Status want_vectors() const;

  engine::Engine& engine_;
  const text::Tokenizer* tokenizer_;
  sched::Embedder embedder_;
};

}  // namespace reprise::api
