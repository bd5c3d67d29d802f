// EventBox: one reprise_event with what it points to. EventQueue: events between the engine's thread and reprise_poll,
// with a descriptor that is readable while there are some. AnswerSink: makes the events of one answer, on the engine's
// thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capi/call.h"
#include "sched/request.h"
#include "server/answer_splitter.h"
#include "text/text_stream.h"

namespace reprise::capi {

class EventBox {
 public:
  EventBox(uint64_t request, void* context, int32_t kind, int answer);
  EventBox(const EventBox&) = delete;
  EventBox& operator=(const EventBox&) = delete;

  std::string text, reasoning, calls, stop;
  // Each with as many of the best as `most`; without logprobs (-1) they are ids alone.
  void add_tokens(const std::vector<engine::SampledToken>& tokens, int most);
  void fail(const Failure& why);
  reprise_event& fields() { return event_; }
  // Points to the above, which stays as it is from now on.
  const reprise_event& sealed();

 private:
  reprise_event event_{};
  std::vector<int32_t> ids_;
  std::vector<float> logprobs_;
  std::vector<reprise_scored> top_;
  std::optional<reprise_error> error_;
};

using EventFunction = std::function<void(std::unique_ptr<EventBox>)>;

class EventQueue {
 public:
  static Result<std::unique_ptr<EventQueue>> make();
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  void push(std::unique_ptr<EventBox> event);  // any thread
  int descriptor() const { return descriptor_; }
  // One caller at a time: what there is, waited for; good until the next call. Busy for a second caller.
  Result<const std::vector<const reprise_event*>*> take(std::optional<std::chrono::milliseconds> most);

 private:
  explicit EventQueue(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::unique_ptr<EventBox>> waiting_;
  std::mutex taking_;  // whose owner has the next two
  std::vector<std::unique_ptr<EventBox>> taken_;
  std::vector<const reprise_event*> shown_;
};

// What the answers of a request share. Its maker fills it before the scheduler has any of them.
struct Answering {
  uint64_t id = 0;
  Call call;
  std::function<void(std::unique_ptr<EventBox>)> tell;
  std::function<void(uint64_t id)> ended;  // all answers have finished
  int64_t running = 0;                     // the engine's thread
  std::atomic<bool> refused{false};        // not all answers found a place; the caller does not know of it
};

class AnswerSink final : public sched::RequestSink {
 public:
  AnswerSink(std::shared_ptr<Answering> all, int answer, const text::Tokenizer* tokenizer);

  void admitted(int64_t cached_tokens) override;
  void prompt(std::vector<engine::SampledToken> tokens) override;
  bool token(const engine::SampledToken& token, sched::FinishReason finish) override;
  void finished(const sched::RequestResult& result) override;

 private:
  std::unique_ptr<EventBox> box(int32_t kind) const;
  void add_text(EventBox& event, const std::string& text, bool last);

  std::shared_ptr<Answering> all_;
  int answer_;
  text::TextStream text_;
  std::optional<server::AnswerSplitter> splitter_;  // of a chat
  Status problem_;
  int64_t cached_ = 0, generated_ = 0, reasoned_ = 0;
  bool called_ = false;
};

}  // namespace reprise::capi
