// Job: one generating call from its parse to its last byte.
//
// start() hands its requests to the scheduler. Their sinks make text on the scheduler's thread and leave the parts in
// the job, which writes them on the HTTP thread, several at once when it is behind. When the client goes away the
// requests are cancelled. It lives as long as a sink or the client needs it.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "sched/replicas.h"
#include "server/answer.h"
#include "server/dialect.h"
#include "server/generate_call.h"
#include "server/http_server.h"
#include "server/request_log.h"
#include "server/request_span.h"

namespace reprise::server {

// What a job works with; all of it outlives the jobs.
struct JobContext {
  const ServedModel& model;
  sched::Replicas& scheduler;
  HttpServer& http;
  std::chrono::milliseconds ping_every{15000};  // of silence in a stream, where the dialect has a word for it
  std::shared_ptr<RequestSpan> span = nullptr;  // of the call's trace; null: it has none
  bool log_prompts = false;                     // the request log has what was asked and answered
};

class Job : public std::enable_shared_from_this<Job> {
 public:
  // On the HTTP thread. Answers at once with an error, and is null, when the scheduler refuses. `done` is called on the
  // HTTP thread when nothing more will come.
  using Done = std::function<void(const Job&)>;
  static std::shared_ptr<Job> start(const JobContext& context, const Dialect& dialect, GenerateCall call,
                                    std::shared_ptr<Reply> reply, const Headers& headers, Done done);

  // Use start(): this is for std::make_shared.
  Job(const JobContext& context, const Dialect& dialect, GenerateCall call, std::shared_ptr<Reply> reply,
      Headers headers, Done done);

  // On the HTTP thread: ends the answers to one prompt, or all, and lets them be sent as far as they came.
  void abort(std::optional<size_t> prompt = std::nullopt);
  const std::vector<sched::RequestId>& requests() const { return ids_; }
  // By which the call, and each of its prompts, can be aborted.
  std::vector<std::pair<std::string, std::optional<size_t>>> names() const;
  // On the HTTP thread: how far it is.
  RequestRecord record() const;

 private:
  class Sink;

  std::optional<ApiError> submit();
  void push(AnswerPart part);  // any thread
  void drain();
  std::string take(AnswerPart& part);  // gives what the stream says of it
  void write(std::string piece);
  void ping_later();
  void split(AnswerPart& part);
  void note();  // for the access log
  void note_text();
  void finish();
  void cancel();

  JobContext context_;
  const Dialect& dialect_;
  GenerateCall call_;
  std::unique_ptr<AnswerWriter> writer_;
  std::shared_ptr<Reply> reply_;
  Headers headers_;
  Done done_;
  std::vector<sched::RequestId> ids_;

  // The HTTP thread.
  std::vector<Answer> answers_;
  std::vector<AnswerSplitter> splitters_;  // of a chat's answers
  std::vector<bool> greeted_, aborted_;
  std::vector<std::optional<int64_t>> cached_;  // tokens of the prompt, of those that were admitted
  std::vector<bool> waits_;                     // preempted, and not running again
  sched::Clock::time_point started_ = sched::Clock::now();
  std::optional<sched::Clock::time_point> first_token_;
  int64_t created_;  // seconds since 1970
  size_t finished_ = 0;
  bool begun_ = false, ended_ = false;
  sched::Clock::time_point written_;  // the last piece of a stream

  std::mutex mutex_;
  std::vector<AnswerPart> parts_;
  bool posted_ = false;
};

}  // namespace reprise::server
