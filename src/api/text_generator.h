// TextGenerator: requests in, text out while it arrives: joins the Generator with the text of each answer. Lists that
// are run one after the other share the prefix cache. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "sched/generator.h"
#include "text/tokenizer.h"

namespace reprise::api {

struct TextResult {
  std::optional<std::string> text;            // without end token and stop string; nullopt without a tokenizer
  std::vector<int32_t> token_ids;             // everything that was generated
  std::vector<engine::SampledToken> sampled;  // when logprobs are asked for
  sched::FinishReason finish = sched::FinishReason::None;
  double ttft_s = 0;
};

// What ended the answer before the model did: "`max_new_tokens` 128; a larger N allows more", or the context. "" when
// nothing did.
std::string cut_at(const TextResult& result, int64_t max_new_tokens, int64_t context_length);

// Called after every token with the text it made certain, often empty. Answer false to cancel that request.
using PieceSink = std::function<bool(size_t request, std::string_view piece)>;

struct TextGeneratorOptions {
  bool prefix_cache = true;
  spec::SpecOptions speculation = {};
  sched::AdapterPtr adapter = nullptr;  // of all requests; null: the model alone
};

class TextGenerator {
 public:
  // `tokenizer` may be null: then there is no text.
  TextGenerator(engine::Engine& engine, const text::Tokenizer* tokenizer, const TextGeneratorOptions& options = {});

  Result<std::vector<TextResult>> run(std::span<const sched::GenerationRequest> requests, const PieceSink& sink = {});
  const sched::GenerationTimes& times() const { return generator_.times(); }
  sched::SpeculationStats speculation() const { return generator_.speculation(); }  // of all runs

 private:
  sched::Generator generator_;
  const text::Tokenizer* tokenizer_;
};

}  // namespace reprise::api
