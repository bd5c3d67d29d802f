#include "capi/events.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <limits>

#include "base/elapsed.h"

namespace reprise::capi {
namespace {

using engine::SampledToken;
using sched::FinishReason;

reprise_text shown(const std::string& s) { return {s.data(), s.size()}; }

OrderedJson json_of(const std::vector<server::ToolCall>& calls) {
  OrderedJson out = OrderedJson::array();
  for (const server::ToolCall& c : calls) out.push_back({{"id", c.id}, {"name", c.name}, {"arguments", c.arguments}});
  return out;
}

text::TextStream stream_of(const server::GenerateCall& call, const text::Tokenizer* tokenizer) {
  return {tokenizer, {call.sampling.stop, call.include_stop, call.skip_special_tokens}};
}

int32_t finish_of(const sched::RequestResult& r, bool called) {
  if (!r.status.is_ok() && r.status.code() != Code::Cancelled) return REPRISE_FAILED;
  if (!r.status.is_ok() || r.finish == FinishReason::Cancelled) return REPRISE_ENDED;
  if (r.finish == FinishReason::Length) return REPRISE_LENGTH;
  return called ? REPRISE_TOOL_CALLS : REPRISE_STOP;
}

}  // namespace

EventBox::EventBox(uint64_t request, void* context, int32_t kind, int answer) {
  event_.size = sizeof event_;
  event_.request = request;
  event_.context = context;
  event_.kind = kind;
  event_.answer = answer;
  event_.finish = REPRISE_RUNNING;
}

void EventBox::add_tokens(const std::vector<SampledToken>& tokens, int most) {
  event_.top_count = most > 0 ? static_cast<size_t>(most) : 0;
  for (const SampledToken& t : tokens) {
    ids_.push_back(t.token);
    if (most < 0) continue;
    logprobs_.push_back(t.logprob.value_or(std::numeric_limits<float>::quiet_NaN()));
    for (size_t i = 0; i < event_.top_count; ++i)
      top_.push_back(i < t.top.size() ? reprise_scored{t.top[i].token, t.top[i].logprob} : reprise_scored{-1, 0});
  }
}

void EventBox::fail(const Failure& why) { error_ = error_of(why); }

const reprise_event& EventBox::sealed() {
  event_.text = shown(text);
  event_.reasoning = shown(reasoning);
  event_.calls = shown(calls);
  event_.stop = shown(stop);
  event_.ids = ids_.data();
  event_.id_count = ids_.size();
  event_.logprobs = logprobs_.empty() ? nullptr : logprobs_.data();
  event_.top = top_.empty() ? nullptr : top_.data();
  event_.error = error_ ? &*error_ : nullptr;
  return event_;
}

Result<std::unique_ptr<EventQueue>> EventQueue::make() {
  const int descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor < 0) return error(Code::Busy, "no descriptor for events: {}", std::strerror(errno));
  return std::unique_ptr<EventQueue>(new EventQueue(descriptor));
}

EventQueue::~EventQueue() { ::close(descriptor_); }

void EventQueue::push(std::unique_ptr<EventBox> event) {
  std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(event));
  if (waiting_.size() > 1) return;
  const uint64_t one = 1;
  // The counter was 0, so this cannot fail.
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, &one, sizeof one);
  arrived_.notify_one();
}

Result<const std::vector<const reprise_event*>*> EventQueue::take(std::optional<std::chrono::milliseconds> most) {
  std::unique_lock mine(taking_, std::try_to_lock);
  if (!mine) return error(Code::Busy, "another thread is in reprise_poll(); one at a time may be");
  taken_.clear();
  shown_.clear();
  std::unique_lock lock(mutex_);
  const auto some = [&] { return !waiting_.empty(); };
  if (most)
    arrived_.wait_for(lock, *most, some);
  else
    arrived_.wait(lock, some);
  if (!waiting_.empty()) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(descriptor_, &count, sizeof count);
  }
  taken_.swap(waiting_);
  for (const auto& e : taken_) shown_.push_back(&e->sealed());
  return &shown_;
}

AnswerSink::AnswerSink(std::shared_ptr<Answering> all, int answer, const text::Tokenizer* tokenizer)
    : all_(std::move(all)), answer_(answer), text_(stream_of(all_->call.call, tokenizer)) {
  if (all_->call.call.kind == server::CallKind::Chat) splitter_.emplace(all_->call.call.split);
}

std::unique_ptr<EventBox> AnswerSink::box(int32_t kind) const {
  auto out = std::make_unique<EventBox>(all_->id, all_->call.context, kind, answer_);
  reprise_event& e = out->fields();
  e.prompt_tokens = static_cast<int64_t>(all_->call.call.prompts.front().size());
  e.cached_tokens = cached_;
  e.completion_tokens = generated_;
  e.reasoning_tokens = reasoned_;
  return out;
}

void AnswerSink::admitted(int64_t cached_tokens) {
  cached_ = cached_tokens;
  if (!all_->refused) all_->tell(box(REPRISE_STARTED));
}

void AnswerSink::prompt(std::vector<SampledToken> tokens) {
  auto event = box(REPRISE_PROMPT_LOGPROBS);
  event->add_tokens(tokens, all_->call.prompt_logprobs);
  all_->tell(std::move(event));
}

void AnswerSink::add_text(EventBox& event, const std::string& text, bool last) {
  if (!splitter_) {
    event.text += text;
    return;
  }
  std::vector<server::ToolCall> calls;
  const auto add = [&](server::SplitText more) {
    event.text += more.content;
    event.reasoning += more.reasoning;
    for (server::ToolCall& c : more.calls) calls.push_back(std::move(c));
  };
  add(splitter_->push(text));
  if (last) add(splitter_->finish());
  called_ |= !calls.empty();
  if (!calls.empty()) event.calls = json_of(calls).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

bool AnswerSink::token(const SampledToken& token, FinishReason finish) {
  if (all_->refused) return false;
  using End = text::TextStream::End;
  auto text = text_.push(token.token, finish == FinishReason::None   ? End::None
                                      : finish == FinishReason::Stop ? End::EndToken
                                                                     : End::Cut);
  if (!text) {
    problem_ = text.status();
    return false;
  }
  ++generated_;
  auto event = box(REPRISE_TOKENS);
  event->add_tokens({token}, all_->call.logprobs);
  add_text(*event, *text, false);
  if (splitter_ && (splitter_->thinking() || !event->reasoning.empty())) event->fields().reasoning_tokens = ++reasoned_;
  all_->tell(std::move(event));
  return !text_.stopped();
}

void AnswerSink::finished(const sched::RequestResult& given) {
  sched::RequestResult result = given;
  if (!problem_.is_ok()) result.status = problem_;
  auto event = box(REPRISE_FINISHED);
  std::string rest;
  if (problem_.is_ok() && result.finish == FinishReason::Cancelled)
    if (auto held = text_.finish()) rest = std::move(*held);
  add_text(*event, rest, true);
  if (text_.stopped()) event->stop = text_.stop_string();
  reprise_event& e = event->fields();
  e.finish = finish_of(result, called_);
  e.queued_s = result.admitted ? seconds_of(*result.admitted - result.arrived) : 0;
  e.first_token_s = result.first_token ? seconds_of(*result.first_token - result.arrived) : 0;
  e.total_s = seconds_of(result.finished - result.arrived);
  if (!result.status.is_ok())
    event->fail(result.late ? Failure(result.status, "deadline_s") : Failure(result.status));
  else if (e.finish == REPRISE_ENDED)
    event->fail(Status(Code::Cancelled, "the request was cancelled"));
  const bool last = --all_->running == 0;
  if (!all_->refused) {
    // After this the caller may count on reprise_cancel() not to know it any more.
    if (last) all_->ended(all_->id);
    all_->tell(std::move(event));
  }
}

}  // namespace reprise::capi
