#include "server/span_exporter.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/log.h"

namespace reprise::server {
namespace {

// Those that OTLP over HTTP has a client send again.
bool may_be_sent_again(int status) {
  return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

// {"partialSuccess": {"rejectedSpans": "3"}}; a 64-bit number may be a text.
uint64_t rejected_in(const std::string& body) {
  const Json answer = Json::parse(body, nullptr, false);
  if (!answer.is_object()) return 0;
  const Json::json_pointer place("/partialSuccess/rejectedSpans");
  if (!answer.contains(place)) return 0;
  const Json& n = answer.at(place);
  if (n.is_number_unsigned()) return n.get<uint64_t>();
  return n.is_string() ? std::strtoull(n.get<std::string>().c_str(), nullptr, 10) : 0;
}

void tell_loss(const std::string& place, const std::string& why) {
  log::warning("--otlp-endpoint {}: {}; spans are dropped, and counted (reprise:otlp_dropped_total)", place, why);
}

}  // namespace

std::optional<std::chrono::milliseconds> retry_after_of(const std::string& header,
                                                        std::chrono::system_clock::time_point now) {
  uint32_t seconds = 0;
  const char *begin = header.data(), *end = begin + header.size();
  if (const auto read = std::from_chars(begin, end, seconds); read.ec == std::errc() && read.ptr == end)
    return std::chrono::seconds(seconds);
  std::tm date{};
  const char* rest = ::strptime(begin, "%a, %d %b %Y %H:%M:%S GMT", &date);
  if (!rest || *rest) return std::nullopt;
  // In seconds: the clock's own numbers end in the year 2262.
  const int64_t left = ::timegm(&date) - std::chrono::system_clock::to_time_t(now);
  return std::chrono::seconds(std::max<int64_t>(0, left));
}

bool SpanQueue::add(std::vector<TraceSpan> spans, Clock::time_point now) {
  if (waiting_.size() + spans.size() > options_.most) return false;
  for (TraceSpan& s : spans) waiting_.push_back({std::move(s), now});
  return true;
}

std::optional<SpanQueue::Clock::time_point> SpanQueue::due() const {
  if (waiting_.empty()) return std::nullopt;
  const auto oldest = waiting_.front().since;
  return waiting_.size() >= options_.batch ? oldest : oldest + options_.every;
}

std::vector<TraceSpan> SpanQueue::take(Clock::time_point now, bool all) {
  std::vector<TraceSpan> out;
  if (waiting_.empty() || (!all && *due() > now)) return out;
  const size_t n = std::min(options_.batch, waiting_.size());
  out.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    out.push_back(std::move(waiting_.front().span));
    waiting_.pop_front();
  }
  return out;
}

SpanExporter::SpanExporter(OrderedJson resource, Options options)
    : resource_(std::move(resource)), options_(options), queue_(options.queue) {}

SpanExporter::~SpanExporter() { finish(std::chrono::milliseconds(0)); }

void SpanExporter::point_to(std::string place, Post post) {
  std::lock_guard lock(mutex_);
  on_ = static_cast<bool>(post);
  post_ = std::move(post);
  place_ = std::move(place);
  slow_ = told_slow_ = false;
  if (!post_)
    for (size_t n = 1; n > 0; dropped_ += n) n = queue_.take({}, true).size();
  if (post_ && !thread_.joinable() && !until_) thread_ = std::thread([this] { work(); });
}

void SpanExporter::add(std::vector<TraceSpan> spans) {
  const size_t n = spans.size();
  {
    std::lock_guard lock(mutex_);
    const bool open = post_ && !until_;
    if (!open || !queue_.add(std::move(spans), Clock::now())) {
      slow_ |= open;
      dropped_ += n;
      return;
    }
  }
  changed_.notify_all();
}

void SpanExporter::finish(std::chrono::milliseconds time) {
  {
    std::lock_guard lock(mutex_);
    if (!until_) until_ = Clock::now() + time;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SpanExporter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto batch = queue_.take(Clock::now(), until_.has_value());
    if (!batch.empty()) {
      const Post post = post_;
      const std::string place = place_;
      const bool tell = slow_ && !std::exchange(told_slow_, true);
      lock.unlock();
      if (tell) tell_loss(place, "it is slower than the requests");
      send(batch, post, place);
      lock.lock();
    } else if (until_) {
      return;
    } else if (const auto due = queue_.due()) {
      changed_.wait_until(lock, *due);
    } else {
      changed_.wait(lock);
    }
  }
}

void SpanExporter::send(const std::vector<TraceSpan>& batch, const Post& post, const std::string& place) {
  const std::string body = otlp_body(batch, resource_);
  auto pause = options_.first_wait;
  for (int left = options_.tries; left > 0; --left) {
    const auto time = limit();
    if (time <= std::chrono::milliseconds(0)) return drop(batch.size(), place, "the server ended before");
    const Answer answer = post(body, time);
    if (answer.status >= 200 && answer.status < 300) return record_sent(answer, batch.size(), place);
    const auto asked = std::min(answer.wait.value_or(pause), options_.longest_wait);
    if (left == 1 || !may_be_sent_again(answer.status) || !wait(asked))
      return drop(batch.size(), place,
                  answer.status > 0 ? fmt::format("it answered with status {}", answer.status) : answer.problem);
    pause *= 2;
  }
}

void SpanExporter::record_sent(const Answer& answer, size_t spans, const std::string& place) {
  const uint64_t rejected = std::min<uint64_t>(rejected_in(answer.body), spans);
  sent_ += spans - rejected;
  if (rejected > 0) return drop(rejected, place, fmt::format("it rejected {} spans of {}", rejected, spans));
  if (std::exchange(told_, false)) log::info("--otlp-endpoint {}: spans are taken again", place);
}

void SpanExporter::drop(size_t spans, const std::string& place, const std::string& why) {
  dropped_ += spans;
  if (!std::exchange(told_, true)) tell_loss(place, why);
}

std::chrono::milliseconds SpanExporter::limit() {
  std::lock_guard lock(mutex_);
  if (!until_) return options_.limit;
  return std::min(options_.limit, std::chrono::duration_cast<std::chrono::milliseconds>(*until_ - Clock::now()));
}

bool SpanExporter::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return until_.has_value(); });
}

}  // namespace reprise::server
