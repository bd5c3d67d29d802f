// RequestRecord and RequestLog: the calls that generate, as GET /requests lists them: names and numbers, no text. The
// log keeps the last ones that ended. Plain values; the HTTP thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace reprise::server {

// A call with several answers is Running while one of them runs. Preempted: it ran, and waits for its next turn.
enum class RequestState : uint8_t { Queued, Running, Preempted, Finished, Aborted, Failed };

struct RequestRecord {
  std::string id;
  const char* route = "";  // that was called
  RequestState state = RequestState::Queued;
  int64_t created = 0;  // seconds since 1970
  bool stream = false;
  int64_t answers = 1;  // prompts times n
  int64_t prompt_tokens = 0, generated_tokens = 0;
  std::optional<int64_t> cached_tokens;  // of the prompts; none before the first is admitted
  double elapsed_s = 0;                  // up to the end, or now
  std::optional<double> first_token_s;
  std::optional<double> tokens_per_s;       // after the first token, all answers together
  std::vector<std::string> finish_reasons;  // of the answers that ended, each once
};

class RequestLog {
 public:
  static constexpr size_t kMostRecent = 100, kMostRunning = 100;

  void add(RequestRecord ended);
  // The oldest of `running`, and what ended, the last one first.
  OrderedJson json(std::vector<RequestRecord> running) const;

 private:
  std::deque<RequestRecord> recent_;
  uint64_t ended_ = 0;
};

}  // namespace reprise::server
