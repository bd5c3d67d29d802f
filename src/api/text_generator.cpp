#include "api/text_generator.h"

#include "text/text_stream.h"

namespace reprise::api {
namespace {

using sched::FinishReason;

// The text of one request so far.
struct Stream {
  text::TextStream tokens;
  std::string text;

  // Returns what became certain.
  Result<std::string> push(const sched::TokenEvent& event) {
    using End = text::TextStream::End;
    const End end = event.finish == FinishReason::None   ? End::None
                    : event.finish == FinishReason::Stop ? End::EndToken
                                                         : End::Cut;
    ASSIGN_OR_RETURN(std::string certain, tokens.push(event.token.token, end));
    text += certain;
    return certain;
  }
};

sched::GeneratorOptions options_of(const engine::Engine& engine, const TextGeneratorOptions& given) {
  sched::GeneratorOptions o;
  o.speculation = given.speculation;
  o.adapter = given.adapter;
  // With expanded latents the cut of a prompt may change bits, and a prefix that is known changes the cut.
  o.prefix_cache = given.prefix_cache && !engine.options().graph.pipeline.expand_latents;
  for (const int64_t id : engine.config().eos_token_ids) o.eos_tokens.push_back(static_cast<int32_t>(id));
  return o;
}

}  // namespace

std::string cut_at(const TextResult& result, int64_t max_new_tokens, int64_t context_length) {
  if (result.finish != FinishReason::Length) return {};
  if (static_cast<int64_t>(result.token_ids.size()) >= max_new_tokens)
    return fmt::format("`max_new_tokens` {}; a larger N allows more", max_new_tokens);
  return fmt::format("the end of the context, {} tokens; see `context_length`", context_length);
}

TextGenerator::TextGenerator(engine::Engine& engine, const text::Tokenizer* tokenizer,
                             const TextGeneratorOptions& options)
    : generator_(engine, options_of(engine, options)), tokenizer_(tokenizer) {}

Result<std::vector<TextResult>> TextGenerator::run(std::span<const sched::GenerationRequest> requests,
                                                   const PieceSink& sink) {
  std::vector<Stream> streams;
  if (tokenizer_)
    for (const auto& r : requests) streams.push_back({text::TextStream(tokenizer_, {r.sampling.stop}), {}});
  std::vector<bool> cancelled(requests.size(), false), stopped(requests.size(), false);
  Status problem;
  const auto on_token = [&](const sched::TokenEvent& event) {
    if (!problem.is_ok()) return false;
    std::string piece;
    if (tokenizer_) {
      Stream& stream = streams[event.request];
      auto certain = stream.push(event);
      if (!certain) {
        problem = certain.status();
        return false;
      }
      piece = std::move(certain).value();
      stopped[event.request] = stream.tokens.stopped();
    }
    if (sink && !sink(event.request, piece)) cancelled[event.request] = true;
    return !cancelled[event.request] && !stopped[event.request];
  };
  ASSIGN_OR_RETURN(auto generated, generator_.run(requests, on_token));
  RETURN_IF_ERROR(problem);

  std::vector<TextResult> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    TextResult& r = results[i];
    if (tokenizer_) r.text = std::move(streams[i].text);
    r.token_ids = std::move(generated[i].tokens);
    r.sampled = std::move(generated[i].sampled);
    r.finish = cancelled[i] ? FinishReason::Cancelled : generated[i].finish;
    r.ttft_s = generated[i].ttft_s;
  }
  return results;
}

}  // namespace reprise::api
