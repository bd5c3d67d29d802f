// PooledCall: one call of a route that gives vectors or scores: embeddings, rerank, score, and Ollama's. Read from its
// JSON; an error names the field and what is allowed. Plain values and pure functions; any thread.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/generate_call.h"

namespace reprise::server {

enum class PooledForm : uint8_t { Embeddings, OllamaEmbed, OllamaEmbeddings, Rerank, Score };

struct PooledCall {
  PooledForm form = PooledForm::Embeddings;
  std::string id, model_name;
  std::vector<std::vector<int32_t>> texts;  // what is computed
  std::vector<int64_t> second_kinds;        // of each (sched::Request::second_kind)
  int64_t dimensions = 0;                   // 0: all
  bool base64 = false;
  // For scores: pairs of texts, by index, whose vectors are compared; empty where each text is a pair.
  std::vector<std::pair<size_t, size_t>> compared;
  std::vector<std::string> documents;  // that the answer repeats
  int64_t top_n = 0;                   // 0: all
  int64_t priority = 0;
  std::optional<double> timeout_s;

  int64_t tokens() const;
};

using ParsedPooledCall = std::variant<PooledCall, ApiError>;
// What a route of this form reads. A model that generates is refused.
ParsedPooledCall parse_pooled(const Json& body, PooledForm form, const ServedModel& model, const CallLimits& limits);

// Scores of rows in the order of `call.texts`: a cosine for each compared pair, or the row's own number.
std::vector<float> scores_of(const PooledCall& call, const std::vector<std::vector<float>>& rows);

// Why a model that gives vectors or scores is not asked to write; nullopt for others.
std::optional<ApiError> refuse_to_generate(const ServedModel& model);

}  // namespace reprise::server
