#include "client/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/elapsed.h"

namespace reprise::client {
namespace {

using Clock = GenerationReader::Clock;

// A socket for every call in flight.
void allow_descriptors(int64_t calls) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t want = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(calls) + 64);
  if (limit.rlim_cur >= want) return;
  limit.rlim_cur = want;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

class Load {
 public:
  Load(HttpCalls& http, std::span<const GenerationCall> calls, const GenerationStyle& style, const LoadOptions& options,
       const std::function<void(const GenerationRecord&)>& on_end)
      : http_(http), calls_(calls), style_(style), options_(options), on_end_(on_end), random_(options.seed) {
    run_.records.resize(calls.size());
  }

  LoadRun run() {
    allow_descriptors(options_.max_concurrency > 0 ? options_.max_concurrency : static_cast<int64_t>(calls_.size()));
    begin_ = Clock::now();
    if (std::isinf(options_.rate)) {
      arrived_ = calls_.size();
      launch();
    } else {
      arrive(begin_);
    }
    http_.run();
    run_.duration_s = seconds_of(last_ - begin_);
    return std::move(run_);
  }

 private:
  class Sink final : public CallSink {
   public:
    Sink(Load& load, size_t index, Clock::time_point sent)
        : load_(load), index_(index), reader_(load.style_.endpoint, load.calls_[index], sent), sent_(sent) {}
    void began(int status) override { reader_.began(status); }
    void piece(std::string_view bytes) override { reader_.push(bytes, Clock::now()); }
    void end(const Status& status) override {
      GenerationRecord record = reader_.end(status);
      record.begin_s = seconds_of(sent_ - load_.begin_);
      load_.ended(index_, std::move(record));
    }

   private:
    Load& load_;
    size_t index_;
    GenerationReader reader_;
    Clock::time_point sent_;
  };

  // One call arrives at `when`, the next an exponential time later.
  void arrive(Clock::time_point when) {
    http_.at(when, [this, when] {
      if (arrived_ == calls_.size()) return;
      ++arrived_;
      launch();
      const double uniform = static_cast<double>((random_() >> 11) + 1) * 0x1p-53;  // (0, 1]
      const std::chrono::duration<double> gap(-std::log(uniform) / options_.rate);
      if (arrived_ < calls_.size()) arrive(when + std::chrono::duration_cast<Clock::duration>(gap));
    });
  }

  void launch() {
    while (next_ < arrived_ && (options_.max_concurrency <= 0 || in_flight_ < options_.max_concurrency)) {
      const size_t index = next_++;
      run_.peak_concurrency = std::max(run_.peak_concurrency, ++in_flight_);
      HttpCall call = http_call(calls_[index], style_);
      http_.start(std::move(call), std::make_shared<Sink>(*this, index, Clock::now()));
    }
  }

  void ended(size_t index, GenerationRecord record) {
    --in_flight_;
    last_ = Clock::now();
    run_.records[index] = std::move(record);
    if (on_end_) on_end_(run_.records[index]);
    launch();
  }

  HttpCalls& http_;
  std::span<const GenerationCall> calls_;
  const GenerationStyle& style_;
  LoadOptions options_;
  const std::function<void(const GenerationRecord&)>& on_end_;
  std::mt19937_64 random_;
  LoadRun run_;
  Clock::time_point begin_, last_;
  size_t arrived_ = 0, next_ = 0;
  int64_t in_flight_ = 0;
};

}  // namespace

LoadRun run_load(HttpCalls& http, std::span<const GenerationCall> calls, const GenerationStyle& style,
                 const LoadOptions& options, const std::function<void(const GenerationRecord&)>& on_end) {
  if (calls.empty()) return {};
  return Load(http, calls, style, options, on_end).run();
}

}  // namespace reprise::client
