#include "sched/mailbox.h"

#include <utility>

namespace reprise::sched {

Status Mailbox::place_for(int64_t tokens) const {
  RETURN_IF_ERROR(lost_);
  if (closed_) return error(Code::Busy, "the server is shutting down and takes no new requests");
  const int64_t most = options_.max_running + options_.max_queued;
  if (counts_.unfinished >= most)
    return error(Code::Busy, "{} requests are running or waiting, which is the most this server holds", most);
  const int64_t waiting = counts_.waiting_tokens;
  if (options_.max_queued_tokens > 0 && queued_ > 0 && waiting + tokens > options_.max_queued_tokens)
    return error(Code::Busy, "the waiting requests may take {} tokens, and this one {}; at most {} may wait", waiting,
                 tokens, options_.max_queued_tokens);
  return Status::ok();
}

Status Mailbox::check(int64_t tokens) const {
  std::lock_guard lock(mutex_);
  return place_for(tokens);
}

Result<RequestId> Mailbox::add(LivePtr request) {
  const int64_t tokens = request->most_tokens();
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(place_for(tokens));
  const RequestId id = last_id_ == 0 ? options_.first_id : last_id_ + options_.id_step;
  last_id_ = request->id = request->result.id = id;
  ++queued_;
  ++counts_.accepted;
  ++counts_.unfinished;
  ++counts_.unread;
  counts_.waiting_tokens += tokens;
  mail_.push_back({id, std::move(request), {}, false});
  wake();
  return id;
}

void Mailbox::cancel(RequestId id) { put({id, nullptr, {}, true}); }

void Mailbox::post(std::function<void()> what) { put({0, nullptr, std::move(what), false}); }

void Mailbox::put(Mail mail) {
  std::lock_guard lock(mutex_);
  mail_.push_back(std::move(mail));
  wake();
}

void Mailbox::wake() {
  wake_.notify_all();
  if (options_.bell) options_.bell->ring();
}

void Mailbox::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

void Mailbox::stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  wake();
}

bool Mailbox::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

Status Mailbox::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

Mailbox::Counts Mailbox::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<Mail> Mailbox::take() {
  std::lock_guard lock(mutex_);
  counts_.unread = 0;
  return std::exchange(mail_, {});
}

void Mailbox::wait() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stopped_ || !mail_.empty(); });
}

bool Mailbox::waiting() const {
  std::lock_guard lock(mutex_);
  return stopped_ || !mail_.empty();
}

void Mailbox::admitted(const LiveRequest& r) {
  std::lock_guard lock(mutex_);
  --queued_;
  counts_.waiting_tokens -= r.most_tokens();
}

void Mailbox::ended(const LiveRequest& r) {
  std::lock_guard lock(mutex_);
  if (!r.result.admitted) {
    --queued_;
    counts_.waiting_tokens -= r.most_tokens();
  }
  --counts_.unfinished;
}

void Mailbox::lose(const Status& lost) {
  std::lock_guard lock(mutex_);
  lost_ = lost;
  closed_ = stopped_ = true;
}

}  // namespace reprise::sched
