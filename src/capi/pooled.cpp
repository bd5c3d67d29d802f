// Vectors and scores: read as the routes of HTTP read theirs, so that both have the same texts and the same bits.
#include "capi/call.h"
#include "capi/engine.h"

namespace reprise::capi {
namespace {

using server::PooledCall;
using server::PooledForm;

// What the sinks of one call share; they may outlive it.
struct KeptRows {
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<std::vector<float>> rows;
  size_t running = 0;
  Status problem;
};

class KeptRowSink final : public sched::RequestSink {
 public:
  KeptRowSink(std::shared_ptr<KeptRows> kept, size_t text) : kept_(std::move(kept)), text_(text) {}
  void pooled(std::span<const float> row) override {
    std::lock_guard lock(kept_->mutex);
    kept_->rows[text_].assign(row.begin(), row.end());
  }
  bool token(const engine::SampledToken&, sched::FinishReason) override { return false; }
  void finished(const sched::RequestResult& result) override {
    std::lock_guard lock(kept_->mutex);
    if (kept_->problem.is_ok()) kept_->problem = result.status;
    --kept_->running;
    kept_->ended.notify_all();
  }

 private:
  std::shared_ptr<KeptRows> kept_;
  size_t text_;
};

Failure read_pooled(PooledCall& out, const Json& body, PooledForm form, const server::ServedModel& model) {
  auto parsed = server::parse_pooled(body, form, model, {});
  if (const auto* refused = std::get_if<server::ApiError>(&parsed)) return failure_of(*refused);
  out = std::move(std::get<PooledCall>(parsed));
  return {};
}

Failure writes_text(const server::ServedModel& model, std::string_view wanted) {
  return error(Code::Unsupported, "\"{}\" generates text; it was not trained to give {}", model.name, wanted);
}

}  // namespace

Failure Engine::rows_of(const PooledCall& call, std::vector<std::vector<float>>& rows) {
  auto kept = std::make_shared<KeptRows>();
  kept->rows.resize(call.texts.size());
  uint64_t number = 0;
  {
    std::lock_guard lock(live_mutex_);
    number = ++last_id_;
  }
  std::vector<sched::RequestId> ids;
  const auto all_ended = [&] { return kept->running == 0; };
  Failure stopped;
  for (size_t i = 0; i < call.texts.size() && stopped.is_ok();) {
    sched::Request r;
    r.name = call.id;
    r.prompt = call.texts[i];
    r.second_kind = call.second_kinds[i];
    r.call = number;
    r.sink = std::make_unique<KeptRowSink>(kept, i);
    bool alone = false;
    {
      std::lock_guard lock(kept->mutex);
      alone = kept->running++ == 0;
    }
    auto added = loaded_->scheduler->add(std::move(r));
    if (added) {
      ids.push_back(*added);
      ++i;
      continue;
    }
    {
      std::lock_guard lock(kept->mutex);
      --kept->running;
    }
    // The queue is shorter than the list: the next ones go when these are done.
    if (added.status().code() == Code::Busy && !alone)
      stopped = wait(kept->mutex, kept->ended, all_ended);
    else
      stopped = added.status();
  }
  if (stopped.is_ok()) stopped = wait(kept->mutex, kept->ended, all_ended);
  if (!stopped.is_ok()) {
    for (const sched::RequestId id : ids) loaded_->scheduler->cancel(id);
    return stopped;
  }
  std::lock_guard lock(kept->mutex);
  if (!kept->problem.is_ok()) return kept->problem;
  rows = std::move(kept->rows);
  return {};
}

Failure Engine::embed(const std::vector<std::string>& inputs, const std::string& pooling,
                      std::vector<std::vector<float>>& rows) {
  if (here()) return {invalid("reprise_embed() waits, which a hook may not"), ""};
  if (model().pooled_size == 0) return writes_text(model(), "embeddings");
  if (!model().pooling.gives_vectors())
    return error(Code::Unsupported, "\"{}\" gives scores of pairs, and no vectors; reprise_score() asks for them",
                 model().name);
  if (inputs.empty()) return {invalid("inputs: a text or more is expected, not none"), "inputs"};
  const auto kind = checkpoint::parse_pool_kind(pooling.empty() ? "auto" : pooling);
  if (!kind) return {kind.status(), "pooling"};
  if (*kind && **kind != model().pooling.kind)
    return {error(Code::Unsupported, "pooling: the engine was opened with another than \"{}\"; its setting chooses",
                  pooling),
            "pooling"};
  PooledCall call;
  RETURN_IF_FAILURE(read_pooled(call, {{"input", inputs}}, PooledForm::Embeddings, model()));
  return rows_of(call, rows);
}

Failure Engine::score(const std::string& query, const std::vector<std::string>& documents,
                      const std::string& instruction, std::vector<float>& scores) {
  if (here()) return {invalid("reprise_score() waits, which a hook may not"), ""};
  if (model().pooled_size == 0) return writes_text(model(), "scores of documents");
  Json body = {{"query", query}, {"documents", documents}};
  if (!instruction.empty()) body["instruction"] = instruction;
  PooledCall call;
  RETURN_IF_FAILURE(read_pooled(call, body, PooledForm::Rerank, model()));
  std::vector<std::vector<float>> rows;
  RETURN_IF_FAILURE(rows_of(call, rows));
  scores = server::scores_of(call, rows);
  return {};
}

}  // namespace reprise::capi
