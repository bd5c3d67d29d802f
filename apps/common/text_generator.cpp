#include "common/text_generator.h"

#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace reprise::apps {
namespace {

using engine::FinishReason;

// The text of one request so far.
struct Stream {
  Stream(const text::Tokenizer& tokenizer, const engine::GenerationRequest& request)
      : detokenizer(tokenizer), stops(request.sampling.stop) {}

  // Returns what became certain.
  Result<std::string> push(const engine::TokenEvent& event) {
    std::string piece;
    if (event.finish != FinishReason::Stop) {  // an end token has no text
      ASSIGN_OR_RETURN(piece, detokenizer.push(event.token.token));
    }
    std::string certain = stops.push(piece);
    if (event.finish != FinishReason::None && !stops.hit()) {
      ASSIGN_OR_RETURN(std::string rest, detokenizer.finish());
      certain += stops.push(rest);
      certain += stops.finish();
    }
    text += certain;
    return certain;
  }

  text::IncrementalDetokenizer detokenizer;
  text::StopStrings stops;
  std::string text;
};

}  // namespace

std::string cut_at(const TextResult& result, int64_t max_new_tokens, int64_t context_length) {
  if (result.finish != FinishReason::Length) return {};
  if (static_cast<int64_t>(result.token_ids.size()) >= max_new_tokens)
    return fmt::format("--max-new-tokens {}; a larger N allows more", max_new_tokens);
  return fmt::format("the end of the context, {} tokens; see --context-length", context_length);
}

Result<std::vector<TextResult>> TextGenerator::run(std::span<const engine::GenerationRequest> requests,
                                                   const PieceSink& sink) {
  std::vector<Stream> streams;
  if (tokenizer_)
    for (const auto& r : requests) streams.emplace_back(*tokenizer_, r);
  std::vector<bool> cancelled(requests.size(), false), stopped(requests.size(), false);
  Status problem;
  const auto on_token = [&](const engine::TokenEvent& event) {
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
      stopped[event.request] = stream.stops.hit();
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

}  // namespace reprise::apps
