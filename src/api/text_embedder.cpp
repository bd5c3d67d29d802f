#include "api/text_embedder.h"

#include "text/model_input.h"

namespace reprise::api {
namespace {

using checkpoint::PoolingFields;
using checkpoint::PoolKind;

sched::EmbeddingRequest request_of(text::EncodedPair&& pair) {
  const bool kinds = pair.second_kind < pair.ids.size();
  return {std::move(pair.ids), kinds ? static_cast<int64_t>(pair.second_kind) : INT64_MAX};
}

int64_t count(std::span<const sched::EmbeddingRequest> requests) {
  int64_t tokens = 0;
  for (const sched::EmbeddingRequest& r : requests) tokens += static_cast<int64_t>(r.tokens.size());
  return tokens;
}

}  // namespace

Status TextEmbedder::want_tokenizer() const {
  if (tokenizer_) return Status::ok();
  return error(Code::NotFound, "the model has no tokenizer (tokenizer.json); give token ids");
}

Status TextEmbedder::want_vectors() const {
  const PoolingFields& pooling = engine_.pooling();
  if (pooling.gives_vectors()) return Status::ok();
  return error(Code::Unsupported, "this model {}",
               pooling.gives_scores() ? "gives scores of pairs, and no vectors"
                                      : "generates text; it was not trained to give embeddings");
}

Result<EmbeddedTexts> TextEmbedder::embed_tokens(std::vector<sched::EmbeddingRequest> texts, int64_t dimensions) {
  RETURN_IF_ERROR(want_vectors());
  const PoolingFields& pooling = engine_.pooling();
  RETURN_IF_ERROR(sched::check_dimensions(pooling, engine_.pooled_size(), dimensions).at("dimensions"));
  EmbeddedTexts out;
  out.tokens = count(texts);
  ASSIGN_OR_RETURN(out.rows, embedder_.run(texts));
  for (std::vector<float>& row : out.rows) sched::cut(row, dimensions, pooling.normalise);
  return out;
}

Result<EmbeddedTexts> TextEmbedder::embed(std::span<const std::string> texts, const EmbedOptions& options) {
  RETURN_IF_ERROR(want_vectors());
  RETURN_IF_ERROR(want_tokenizer());
  const PoolingFields& pooling = engine_.pooling();
  auto prompt = checkpoint::prompt_of(pooling, options.prompt_name);
  if (!prompt) return prompt.status().at("prompt_name");
  std::vector<sched::EmbeddingRequest> requests;
  for (size_t i = 0; i < texts.size(); ++i) {
    auto ids = text::encode_text(*tokenizer_, *prompt + texts[i], engine_.context_length(), options.truncate,
                                 pooling.kind == PoolKind::Last);
    if (!ids) return texts.size() == 1 ? ids.status() : ids.status().at(fmt::format("text {}", i));
    requests.push_back(request_of(std::move(*ids)));
  }
  return embed_tokens(std::move(requests), options.dimensions);
}

Result<ScoredTexts> TextEmbedder::score(std::string_view query, std::span<const std::string> documents,
                                        const EmbedOptions& options) {
  const PoolingFields& pooling = engine_.pooling();
  if (!pooling.gives_scores()) return error(Code::Unsupported, "this model gives no scores of pairs; a reranker does");
  RETURN_IF_ERROR(want_tokenizer());
  std::vector<sched::EmbeddingRequest> requests;
  for (size_t i = 0; i < documents.size(); ++i) {
    auto ids = text::encode_query(*tokenizer_, pooling.kind == PoolKind::YesNo, options.instruction, query,
                                  documents[i], engine_.context_length());
    if (!ids) return ids.status().at(fmt::format("document {}", i));
    requests.push_back(request_of(std::move(*ids)));
  }
  ScoredTexts out;
  out.tokens = count(requests);
  ASSIGN_OR_RETURN(const auto rows, embedder_.run(requests));
  for (const std::vector<float>& row : rows) out.scores.push_back(row.front());
  return out;
}

}  // namespace reprise::api
