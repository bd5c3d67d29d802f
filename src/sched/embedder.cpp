#include "sched/embedder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace reprise::sched {
namespace {

SchedulerOptions all_at_once() {
  SchedulerOptions o;
  o.max_queued = std::numeric_limits<int64_t>::max() / 2;
  o.log_failures = false;
  return o;
}

class RowSink final : public RequestSink {
 public:
  RowSink(std::vector<float>& row, Status& failed) : row_(row), failed_(failed) {}
  void pooled(std::span<const float> row) override { row_.assign(row.begin(), row.end()); }
  bool token(const SampledToken&, FinishReason) override { return false; }
  void finished(const RequestResult& result) override {
    if (failed_.is_ok()) failed_ = result.status;
  }

 private:
  std::vector<float>& row_;
  Status& failed_;
};

}  // namespace

Embedder::Embedder(engine::Executor& executor) : executor_(executor), scheduler_(executor, all_at_once()) {}

Result<std::vector<std::vector<float>>> Embedder::run(std::span<const EmbeddingRequest> requests) {
  if (executor_.pooled_size() == 0) return error(Code::Unsupported, "this model generates, and gives no vectors");
  std::vector<std::vector<float>> rows(requests.size());
  Status failed;
  std::vector<Request> made;
  for (size_t i = 0; i < requests.size(); ++i) {
    Request r;
    r.prompt = requests[i].tokens;
    r.second_kind = requests[i].second_kind;
    r.sink = std::make_unique<RowSink>(rows[i], failed);
    if (const Status ok = scheduler_.check(r); !ok.is_ok())
      return requests.size() == 1 ? ok : ok.at(fmt::format("text {}", i));
    made.push_back(std::move(r));
  }
  for (Request& r : made) RETURN_IF_ERROR(scheduler_.add(std::move(r)).status());
  while (!scheduler_.idle()) {
    if (!failed.is_ok()) scheduler_.cancel_all();
    scheduler_.step();
  }
  scheduler_.complete_in_flight();
  RETURN_IF_ERROR(failed);
  return rows;
}

Status check_dimensions(const checkpoint::PoolingFields& pooling, int64_t size, int64_t dimensions) {
  if (dimensions == 0 || dimensions == size) return Status::ok();
  const auto& sizes = pooling.sizes;
  if (!sizes.empty()) {
    if (std::find(sizes.begin(), sizes.end(), dimensions) != sizes.end()) return Status::ok();
    return invalid("{}; allowed: {} or {}", dimensions, fmt::join(sizes, ", "), size);
  }
  if (pooling.least_size == 0)
    return invalid("{}; allowed: {}: the model's vectors were not trained to be cut (config.json: is_matryoshka)",
                   dimensions, size);
  if (dimensions >= pooling.least_size && dimensions <= size) return Status::ok();
  return invalid("{}; allowed: {} to {}", dimensions, pooling.least_size, size);
}

void cut(std::vector<float>& row, int64_t dimensions, bool normalise) {
  if (dimensions <= 0 || dimensions >= static_cast<int64_t>(row.size())) return;
  row.resize(static_cast<size_t>(dimensions));
  if (!normalise) return;
  double squares = 0;
  for (const float x : row) squares += static_cast<double>(x) * x;
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (float& x : row) x = static_cast<float>(x / length);
}

}  // namespace reprise::sched
