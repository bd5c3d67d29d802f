#include "server/pooled_job.h"

#include <algorithm>
#include <bit>
#include <ctime>
#include <numeric>

#include "base/base64.h"
#include "sched/embedder.h"
#include "server/fields.h"

namespace reprise::server {
namespace {

// By which the scheduler sees that requests belong together; apart from the numbers of generating calls.
uint64_t next_pooling_call() {
  static std::atomic<uint64_t> last{uint64_t{1} << 62};
  return ++last;
}

std::string bytes_in_base64(const std::vector<float>& row) {
  static_assert(std::endian::native == std::endian::little);
  return base64_of({reinterpret_cast<const char*>(row.data()), row.size() * sizeof(float)});
}

// The shortest decimals that are the same floats.
std::string list_of(const std::vector<float>& row) { return fmt::format("[{}]", fmt::join(row, ",")); }

OrderedJson usage_of(int64_t tokens) { return {{"prompt_tokens", tokens}, {"total_tokens", tokens}}; }

std::string embeddings_body(const PooledCall& call, const std::vector<std::vector<float>>& rows) {
  std::string data;
  for (size_t i = 0; i < rows.size(); ++i)
    data += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":{}}})", i > 0 ? "," : "", i,
                        call.base64 ? '"' + bytes_in_base64(rows[i]) + '"' : list_of(rows[i]));
  return fmt::format(R"({{"object":"list","data":[{}],"model":{},"usage":{},"id":{}}})", data, dumped(call.model_name),
                     dumped(usage_of(call.tokens())), dumped(call.id));
}

std::string ollama_body(const PooledCall& call, const std::vector<std::vector<float>>& rows, int64_t ns) {
  if (call.form == PooledForm::OllamaEmbeddings) return fmt::format(R"({{"embedding":{}}})", list_of(rows.front()));
  std::string all;
  for (const auto& row : rows) all += (all.empty() ? "" : ",") + list_of(row);
  return fmt::format(R"({{"model":{},"embeddings":[{}],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                     dumped(call.model_name), all, ns, call.tokens());
}

std::string rerank_body(const PooledCall& call, const std::vector<float>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (call.top_n > 0 && order.size() > static_cast<size_t>(call.top_n)) order.resize(static_cast<size_t>(call.top_n));
  OrderedJson results = OrderedJson::array();
  for (const size_t i : order) {
    OrderedJson one = {{"index", i}, {"relevance_score", scores[i]}};
    if (!call.documents.empty()) one["document"] = {{"text", call.documents[i]}};
    results.push_back(std::move(one));
  }
  return dumped({{"id", call.id},
                 {"model", call.model_name},
                 {"results", std::move(results)},
                 {"usage", usage_of(call.tokens())},
                 {"meta", {{"api_version", {{"version", "2"}}}, {"billed_units", {{"search_units", 1}}}}}});
}

std::string score_body(const PooledCall& call, const std::vector<float>& scores) {
  OrderedJson data = OrderedJson::array();
  for (size_t i = 0; i < scores.size(); ++i) data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
  return dumped({{"id", call.id},
                 {"object", "list"},
                 {"created", static_cast<int64_t>(std::time(nullptr))},
                 {"model", call.model_name},
                 {"data", std::move(data)},
                 {"usage", usage_of(call.tokens())}});
}

}  // namespace

class PooledJob::Sink final : public sched::RequestSink {
 public:
  Sink(std::shared_ptr<PooledJob> job, size_t text) : job_(std::move(job)), text_(text) {}
  void pooled(std::span<const float> row) override { job_->rows_[text_].assign(row.begin(), row.end()); }
  bool token(const engine::SampledToken&, sched::FinishReason) override { return false; }
  void finished(const sched::RequestResult& result) override { job_->ended(text_, result); }

 private:
  std::shared_ptr<PooledJob> job_;
  size_t text_;
};

PooledJob::PooledJob(const JobContext& context, PooledCall call, std::shared_ptr<Reply> reply, Headers headers,
                     ErrorForm errors, Done done)
    : context_(context),
      call_(std::move(call)),
      reply_(std::move(reply)),
      headers_(std::move(headers)),
      errors_(errors),
      done_(std::move(done)),
      rows_(call_.texts.size()),
      results_(call_.texts.size()),
      left_(call_.texts.size()) {}

void PooledJob::start(const JobContext& context, PooledCall call, std::optional<sched::Clock::time_point> deadline,
                      std::shared_ptr<Reply> reply, const Headers& headers, ErrorForm errors, Done done) {
  auto job = std::make_shared<PooledJob>(context, std::move(call), std::move(reply), headers, errors, std::move(done));
  job->submit(deadline);
}

void PooledJob::submit(std::optional<sched::Clock::time_point> deadline) {
  reply_->on_gone([weak = weak_from_this()] {
    if (const auto job = weak.lock()) job->cancel();
  });
  const uint64_t number = next_pooling_call();
  for (size_t i = 0; i < call_.texts.size(); ++i) {
    sched::Request r;
    r.name = call_.id;
    r.prompt = call_.texts[i];
    r.second_kind = call_.second_kinds[i];
    r.priority = call_.priority;
    r.call = number;
    r.deadline = deadline;
    r.sink = std::make_unique<Sink>(shared_from_this(), i);
    auto id = context_.scheduler.add(std::move(r));
    if (id) {
      ids_.push_back(*id);
      continue;
    }
    // What was taken ends, and the answer says why.
    fail(ApiError::from(id.status()));
    cancel();
    for (; i < call_.texts.size(); ++i) one_less();
    return;
  }
}

void PooledJob::fail(ApiError error) {
  std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

void PooledJob::ended(size_t text, const sched::RequestResult& result) {
  results_[text] = result;
  if (!result.status.is_ok())
    fail(result.late ? ApiError::late(result.status.message()) : ApiError::from(result.status));
  one_less();
}

void PooledJob::one_less() {
  if (left_.fetch_sub(1) == 1) context_.http.post([job = shared_from_this()] { job->answer(); });
}

void PooledJob::cancel() {
  for (const sched::RequestId id : ids_) context_.scheduler.cancel(id);
}

std::string PooledJob::body() const {
  switch (call_.form) {
    case PooledForm::Embeddings: return embeddings_body(call_, rows_);
    case PooledForm::OllamaEmbed:
    case PooledForm::OllamaEmbeddings:
      return ollama_body(call_, rows_,
                         std::chrono::duration_cast<std::chrono::nanoseconds>(sched::Clock::now() - started_).count());
    case PooledForm::Rerank: return rerank_body(call_, scores_of(call_, rows_));
    case PooledForm::Score: return score_body(call_, scores_of(call_, rows_));
  }
  return "";
}

void PooledJob::trace() {
  if (!context_.span) return;
  context_.span->set("gen_ai.response.id", call_.id);
  context_.span->set("gen_ai.response.model", context_.model.name);
  context_.span->set("gen_ai.usage.input_tokens", call_.tokens());
  if (call_.form == PooledForm::Embeddings && call_.dimensions > 0)
    context_.span->set("gen_ai.embeddings.dimension.count", call_.dimensions);
  results_.resize(ids_.size());  // those that were taken
  context_.span->times(results_);
}

void PooledJob::note_text() {
  if (!context_.log_prompts || !context_.model.tokenizer) return;
  OrderedJson texts = OrderedJson::array();
  for (const auto& ids : call_.texts) {
    const auto text = context_.model.tokenizer->decode(ids, false);
    texts.push_back(text ? *text : std::string());
  }
  reply_->note({{"prompt", std::move(texts)}}, false);
}

void PooledJob::answer() {
  trace();
  note_text();
  std::optional<ApiError> error;
  {
    std::lock_guard lock(mutex_);
    error = error_;
  }
  if (error) {
    error->send(*reply_, headers_, errors_);
  } else {
    for (auto& row : rows_) sched::cut(row, call_.dimensions, context_.model.pooling.normalise);
    reply_->send(200, "application/json", body(), headers_);
  }
  done_(error ? 0 : call_.tokens());
}

}  // namespace reprise::server
