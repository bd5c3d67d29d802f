#include "server/job.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/elapsed.h"
#include "server/fields.h"
#include "text/text_stream.h"

namespace reprise::server {

namespace {

// By which the scheduler sees that requests belong together.
uint64_t next_generating_call() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

ApiError error_of(const sched::RequestResult& result) {
  return result.late ? ApiError::late(result.status.message()) : ApiError::from(result.status);
}

}  // namespace

using engine::SampledToken;
using sched::FinishReason;
using sched::RequestResult;

// State of one answer; lives on the scheduler's thread.
class Job::Sink final : public sched::RequestSink {
 public:
  Sink(std::shared_ptr<Job> job, size_t index)
      : job_(std::move(job)),
        index_(index),
        text_(job_->context_.model.tokenizer ? &*job_->context_.model.tokenizer : nullptr,
              {job_->call_.sampling.stop, job_->call_.include_stop, job_->call_.skip_special_tokens}) {}
  // The job and what it holds end on the HTTP thread.
  ~Sink() override {
    HttpServer& http = job_->context_.http;
    http.post([job = std::move(job_)] {});
  }

  void admitted(int64_t cached_tokens) override {
    AnswerPart part;
    part.index = index_;
    part.cached_tokens = cached_tokens;
    job_->push(std::move(part));
  }
  void preempted() override { push_waits(true); }
  void resumed() override { push_waits(false); }
  void prompt(std::vector<SampledToken> tokens) override {
    AnswerPart part;
    part.index = index_;
    part.prompt = std::move(tokens);
    job_->push(std::move(part));
  }
  bool token(const SampledToken& token, FinishReason finish) override {
    // The prompt was to be read and nothing said; the scheduler has no request without a token.
    if (job_->call_.no_answer) return true;
    AnswerPart part;
    part.index = index_;
    using End = text::TextStream::End;
    auto text = text_.push(token.token, finish == FinishReason::None   ? End::None
                                        : finish == FinishReason::Stop ? End::EndToken
                                                                       : End::Cut);
    if (!text) {
      problem_ = text.status();
      return false;
    }
    part.text = std::move(*text);
    part.tokens.push_back(token);
    if (text_.stopped()) part.stop_string = text_.stop_string();
    job_->push(std::move(part));
    return !text_.stopped();
  }
  void finished(const RequestResult& result) override {
    AnswerPart part;
    part.index = index_;
    part.result = result;
    if (job_->call_.no_answer && result.status.is_ok() && result.finish != FinishReason::Cancelled) {
      part.result->finish = FinishReason::Length;
      part.result->completion_tokens = 0;
      part.result->stop_token.reset();
    }
    if (!problem_.is_ok()) {
      part.result->finish = FinishReason::Cancelled;
      part.result->status = problem_;
    } else if (result.finish == FinishReason::Cancelled) {
      if (auto rest = text_.finish()) part.text = std::move(*rest);
    }
    job_->push(std::move(part));
  }

 private:
  void push_waits(bool waits) {
    AnswerPart part;
    part.index = index_;
    part.waits = waits;
    job_->push(std::move(part));
  }

  std::shared_ptr<Job> job_;
  size_t index_;
  text::TextStream text_;
  Status problem_;
};

Job::Job(const JobContext& context, const Dialect& dialect, GenerateCall call, std::shared_ptr<Reply> reply,
         Headers headers, Done done)
    : context_(context),
      dialect_(dialect),
      call_(std::move(call)),
      writer_(dialect.writer(context.model, call_)),
      reply_(std::move(reply)),
      headers_(std::move(headers)),
      done_(std::move(done)),
      answers_(call_.prompts.size() * static_cast<size_t>(call_.n)),
      greeted_(answers_.size(), false),
      aborted_(answers_.size(), false),
      cached_(answers_.size()),
      waits_(answers_.size(), false),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()) {
  std::string named;
  for (const FieldWarning& w : call_.warnings) named += (named.empty() ? "" : ", ") + w.field;
  if (!named.empty()) headers_.emplace_back("x-reprise-warnings", std::move(named));
  if (call_.kind == CallKind::Chat) splitters_.assign(answers_.size(), AnswerSplitter(call_.split));
}

std::shared_ptr<Job> Job::start(const JobContext& context, const Dialect& dialect, GenerateCall call,
                                std::shared_ptr<Reply> reply, const Headers& headers, Done done) {
  auto job = std::make_shared<Job>(context, dialect, std::move(call), std::move(reply), headers, std::move(done));
  if (const auto refused = job->submit()) {
    job->ended_ = true;
    job->cancel();
    refused->send(*job->reply_, headers, dialect.errors());
    return nullptr;
  }
  job->reply_->on_gone([weak = std::weak_ptr(job)] {
    if (auto j = weak.lock()) j->cancel();
  });
  return job;
}

std::optional<ApiError> Job::submit() {
  const uint64_t number = next_generating_call();
  for (size_t i = 0; i < answers_.size(); ++i) {
    const auto n = static_cast<size_t>(call_.n);
    sched::Request r;
    r.name = call_.id;
    r.prompt = call_.prompts[i / n];
    r.images = call_.images;
    r.sampling = call_.sampling;
    r.sampling.seed += i % n;  // each answer draws its own
    r.priority = call_.priority;
    r.call = number;
    r.deadline = call_.deadline;
    r.adapter = call_.adapter;
    r.cache_salt = call_.cache_salt;
    r.prediction = call_.prediction;
    r.draft_tokens = call_.draft_tokens;
    r.prompt_logprobs = call_.echo && call_.sampling.logprobs >= 0;
    r.several = call_.n > 1;
    if (call_.grammar) {
      auto constraint = make_constraint(call_.grammar);
      if (!constraint) return ApiError::from(constraint.status());
      r.constraint = std::move(*constraint);
    }
    r.sink = std::make_unique<Sink>(shared_from_this(), i);
    auto id = context_.scheduler.add(std::move(r));
    if (!id) {
      ApiError refused = ApiError::from(id.status());
      if (refused.status == 429) refused.retry_after_s = sched::retry_after_s(context_.scheduler.stats());
      return refused;
    }
    ids_.push_back(*id);
  }
  return std::nullopt;
}

void Job::cancel() {
  for (const sched::RequestId id : ids_) context_.scheduler.cancel(id);
}

void Job::abort(std::optional<size_t> prompt) {
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (prompt && i / static_cast<size_t>(call_.n) != *prompt) continue;
    aborted_[i] = true;
    context_.scheduler.cancel(ids_[i]);
  }
}

std::vector<std::pair<std::string, std::optional<size_t>>> Job::names() const {
  std::vector<std::pair<std::string, std::optional<size_t>>> out = {{call_.id, std::nullopt}};
  for (size_t i = 0; i < call_.prompt_ids.size(); ++i) out.emplace_back(call_.prompt_ids[i], i);
  return out;
}

void Job::push(AnswerPart part) {
  std::lock_guard lock(mutex_);
  parts_.push_back(std::move(part));
  if (posted_) return;
  posted_ = true;
  context_.http.post([self = shared_from_this()] { self->drain(); });
}

void Job::split(AnswerPart& p) {
  if (splitters_.empty()) return;
  const auto add = [&](SplitText more) {
    p.text += more.content;
    p.reasoning += more.reasoning;
    for (ToolCall& c : more.calls) p.calls.push_back(std::move(c));
  };
  const std::string text = std::exchange(p.text, {});
  const bool thought = splitters_[p.index].thinking();
  add(splitters_[p.index].push(text));
  if (thought || splitters_[p.index].thinking()) p.reasoning_tokens = static_cast<int64_t>(p.tokens.size());
  if (p.result) add(splitters_[p.index].finish());
}

void Job::drain() {
  std::vector<AnswerPart> parts;
  {
    std::lock_guard lock(mutex_);
    parts.swap(parts_);
    posted_ = false;
  }
  if (ended_) return;
  std::string out;
  for (AnswerPart& p : parts) out += take(p);
  // Too late before the first word: the status can still say so.
  if (call_.stream && !begun_ && finished_ == answers_.size() &&
      std::all_of(answers_.begin(), answers_.end(), [](const Answer& a) { return a.result->late; })) {
    ended_ = true;
    note();
    error_of(*answers_.front().result).send(*reply_, headers_, dialect_.errors());
    return done_(*this);
  }
  if (call_.stream && finished_ == answers_.size()) out += writer_->end(answers_);
  if (!out.empty() || (call_.stream && finished_ == answers_.size())) write(std::move(out));
  if (finished_ == answers_.size()) finish();
}

std::string Job::take(AnswerPart& p) {
  if (p.cached_tokens) {
    cached_[p.index] = p.cached_tokens;
    return call_.stream ? writer_->admitted(p.index, *p.cached_tokens) : std::string();
  }
  if (p.waits) {
    waits_[p.index] = *p.waits;
    return {};
  }
  if (!p.tokens.empty() && !first_token_) first_token_ = sched::Clock::now();
  split(p);
  Answer& a = answers_[p.index];
  a.add(p);
  if (p.result) ++finished_;
  if (!call_.stream) return {};
  // Text that is still held back, and nothing else, is not worth an event.
  if (p.text.empty() && p.reasoning.empty() && p.calls.empty() && !p.result && p.prompt.empty() &&
      call_.sampling.logprobs < 0 && !call_.token_ids)
    return {};
  std::string out;
  if (!greeted_[p.index]) {
    greeted_[p.index] = true;
    out = writer_->first(p.index);
  }
  if (p.result && !p.result->status.is_ok() && (p.result->late || p.result->status.code() != Code::Cancelled))
    return out + writer_->error(error_of(*p.result));
  return out + writer_->part(p, a);
}

void Job::write(std::string piece) {
  written_ = sched::Clock::now();
  if (!begun_) {
    begun_ = true;
    Headers headers = headers_;
    headers.emplace_back("cache-control", "no-cache");
    reply_->begin(200, writer_->stream_type(), headers);
    ping_later();
  }
  reply_->write(std::move(piece));
}

// Looks after a while whether the stream has been silent since.
void Job::ping_later() {
  if (writer_->ping().empty()) return;
  const auto due = written_ + context_.ping_every;
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(due - sched::Clock::now());
  context_.http.after(std::max(wait, std::chrono::milliseconds(1)), [weak = weak_from_this()] {
    const auto job = weak.lock();
    if (!job || job->ended_ || job->reply_->gone()) return;
    if (sched::Clock::now() >= job->written_ + job->context_.ping_every) job->write(job->writer_->ping());
    job->ping_later();
  });
}

void Job::note() {
  if (context_.span) context_.span->answered(call_, answers_, context_.model.context_length);
  const Usage usage = usage_of(call_, answers_);
  const auto ms = [](auto from, auto to) {
    return std::round(std::chrono::duration<double, std::milli>(to - from).count() * 1000) / 1000;
  };
  std::string finish;
  std::optional<double> queued, first;
  for (const Answer& a : answers_) {
    const RequestResult& r = *a.result;
    const std::string reason = r.late ? "timeout" : reason_of(r, !a.calls.empty());
    if (finish.find(reason) == std::string::npos) finish += (finish.empty() ? "" : ",") + reason;
    if (r.admitted) queued = std::max(queued.value_or(0), ms(r.arrived, *r.admitted));
    if (r.first_token) first = std::min(first.value_or(HUGE_VAL), ms(r.arrived, *r.first_token));
  }
  OrderedJson facts = {{"model", name_in_answers(context_.model, call_)},
                       {"stream", call_.stream},
                       {"n", call_.n},
                       {"prompt_tokens", usage.prompt_tokens},
                       {"cached_tokens", usage.cached_tokens},
                       {"completion_tokens", usage.completion_tokens},
                       {"finish", finish}};
  if (queued) facts["queued_ms"] = *queued;
  if (first) facts["ttft_ms"] = *first;
  reply_->note(facts);
  int64_t thoughts = 0, preemptions = 0;
  for (const Answer& a : answers_) {
    thoughts += a.reasoning_tokens;
    preemptions += a.result->preemptions;
  }
  OrderedJson ignored = OrderedJson::array();
  for (const FieldWarning& w : call_.warnings) ignored.push_back(w.field);
  reply_->note({{"dialect", dialect_.name()},
                {"reasoning_tokens", thoughts},
                {"preemptions", preemptions},
                {"ignored", std::move(ignored)}},
               false);
  if (context_.log_prompts) note_text();
}

// As the model read and wrote them: one text, or a list where there are several.
void Job::note_text() {
  std::vector<std::string> answers, thoughts;
  OrderedJson calls = OrderedJson::array();
  for (const Answer& a : answers_) {
    answers.push_back(a.text);
    thoughts.push_back(a.reasoning);
    for (const ToolCall& c : a.calls) calls.push_back({{"name", c.name}, {"arguments", c.arguments}});
  }
  const auto one_or_all = [](const std::vector<std::string>& texts) {
    return texts.size() == 1 ? OrderedJson(texts.front()) : OrderedJson(texts);
  };
  OrderedJson text = {{"prompt", one_or_all(call_.prompt_texts)}, {"answer", one_or_all(answers)}};
  const auto is_empty = [](const std::string& s) { return s.empty(); };
  if (!std::all_of(thoughts.begin(), thoughts.end(), is_empty)) text["reasoning"] = one_or_all(thoughts);
  if (!calls.empty()) text["tool_calls"] = std::move(calls);
  reply_->note(text, false);
}

void Job::finish() {
  ended_ = true;
  note();
  if (call_.stream) {
    reply_->end();
  } else {
    const ApiError* failed = nullptr;
    ApiError error;
    for (size_t i = 0; i < answers_.size(); ++i) {
      const Status& status = answers_[i].result->status;
      // What was aborted on purpose is an answer like others: it says so as its reason to end.
      if (status.is_ok() || failed || (aborted_[i] && status.code() == Code::Cancelled)) continue;
      error = error_of(*answers_[i].result);
      failed = &error;
    }
    if (failed)
      failed->send(*reply_, headers_, dialect_.errors());
    else
      reply_->send(200, "application/json", dumped(writer_->whole(answers_)), headers_);
  }
  done_(*this);
}

RequestRecord Job::record() const {
  RequestRecord r;
  r.id = call_.id;
  r.route = dialect_.route();
  r.created = created_;
  r.stream = call_.stream;
  r.answers = static_cast<int64_t>(answers_.size());
  const auto now = sched::Clock::now();
  auto last = started_, first = first_token_.value_or(now);
  bool runs = false, preempted = false, aborted = false, failed = false, answered = first_token_.has_value();
  for (size_t i = 0; i < answers_.size(); ++i) {
    const Answer& a = answers_[i];
    const auto n = static_cast<size_t>(call_.n);
    if (i % n == 0) {  // a prompt counts once, however many answers it has
      r.prompt_tokens += static_cast<int64_t>(call_.prompts[i / n].size());
      if (cached_[i]) r.cached_tokens = r.cached_tokens.value_or(0) + *cached_[i];
    }
    if (!a.result) {
      runs |= cached_[i].has_value() && !waits_[i];
      preempted |= waits_[i];
      r.generated_tokens += static_cast<int64_t>(a.tokens.size());
      last = now;
      continue;
    }
    const RequestResult& result = *a.result;
    r.generated_tokens += result.completion_tokens;
    last = std::max(last, result.finished);
    if (result.first_token) {
      first = answered ? std::min(first, *result.first_token) : *result.first_token;
      answered = true;
    }
    const bool wrong = !result.status.is_ok(),
               cancelled = wrong && result.status.code() == Code::Cancelled && !result.late;
    const char* reason = reason_of(result, !a.calls.empty());
    if (wrong && !cancelled) reason = result.late ? "timeout" : "error";
    if (cancelled && !aborted_[i] && reply_->gone()) reason = "disconnect";
    aborted |= cancelled;
    failed |= wrong && !cancelled;
    if (std::find(r.finish_reasons.begin(), r.finish_reasons.end(), reason) == r.finish_reasons.end())
      r.finish_reasons.push_back(reason);
  }
  if (finished_ < answers_.size())
    r.state = runs ? RequestState::Running : preempted ? RequestState::Preempted : RequestState::Queued;
  else
    r.state = failed ? RequestState::Failed : aborted ? RequestState::Aborted : RequestState::Finished;
  r.elapsed_s = seconds_of(last - started_);
  if (answered) {
    r.first_token_s = seconds_of(first - started_);
    const double after = seconds_of(last - first);
    if (r.generated_tokens > 1 && after > 0) r.tokens_per_s = static_cast<double>(r.generated_tokens - 1) / after;
  }
  return r;
}

}  // namespace reprise::server
