#include "server/request_log.h"

#include <algorithm>

namespace reprise::server {
namespace {

const char* name_of(RequestState state) {
  switch (state) {
    case RequestState::Queued: return "queued";
    case RequestState::Running: return "running";
    case RequestState::Preempted: return "preempted";
    case RequestState::Finished: return "finished";
    case RequestState::Aborted: return "aborted";
    case RequestState::Failed: return "failed";
  }
  return "";
}

template <typename T>
OrderedJson or_null(const std::optional<T>& v) {
  return v ? OrderedJson(*v) : OrderedJson(nullptr);
}

OrderedJson json_of(const RequestRecord& r) {
  return {{"id", r.id},
          {"route", r.route},
          {"state", name_of(r.state)},
          {"created", r.created},
          {"stream", r.stream},
          {"answers", r.answers},
          {"prompt_tokens", r.prompt_tokens},
          {"cached_tokens", or_null(r.cached_tokens)},
          {"generated_tokens", r.generated_tokens},
          {"elapsed", r.elapsed_s},
          {"time_to_first_token", or_null(r.first_token_s)},
          {"tokens_per_second", or_null(r.tokens_per_s)},
          {"finish_reasons", r.finish_reasons}};
}

}  // namespace

void RequestLog::add(RequestRecord ended) {
  ++ended_;
  recent_.push_front(std::move(ended));
  if (recent_.size() > kMostRecent) recent_.pop_back();
}

OrderedJson RequestLog::json(std::vector<RequestRecord> running) const {
  std::sort(running.begin(), running.end(),
            [](const RequestRecord& a, const RequestRecord& b) { return a.elapsed_s > b.elapsed_s; });
  OrderedJson out = {{"running_total", running.size()},
                     {"ended_total", ended_},
                     {"running", OrderedJson::array()},
                     {"recent", OrderedJson::array()}};
  for (size_t i = 0; i < std::min(running.size(), kMostRunning); ++i) out["running"].push_back(json_of(running[i]));
  for (const RequestRecord& r : recent_) out["recent"].push_back(json_of(r));
  return out;
}

}  // namespace reprise::server
